"""How much longer arithmetic takes at the clocks that hours of training leave than in a benchmark of single kernels."""

from __future__ import annotations

import functools
import tomllib
from importlib import resources

import msgspec


class Sustained(msgspec.Struct, frozen=True):
    """A factor on compute-bound durations, how unsure it is (relative, 80 %), and why it is believed."""

    factor: float = 1.0
    uncertainty: float = 0.0
    evidence: tuple[str, ...] = ()


@functools.cache
def _table() -> dict[str, Sustained]:
    text = resources.files("presim.cost.learned").joinpath("sustained.toml").read_text()
    return msgspec.convert(tomllib.loads(text), dict[str, Sustained])


def sustained_of(gpu: str) -> Sustained:
    """The factor of one GPU by its catalogue id; 1 and no further doubt where nothing is known."""
    return _table().get(gpu, Sustained())
