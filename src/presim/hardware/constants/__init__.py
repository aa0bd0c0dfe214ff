"""Calibrated constants, kept as data with unit, source, date and the command that derives each.

::

    figures.toml     constants that rest on whole runs: hosts, GPUs of one model, intervals, NCCL's set-up
    operators.toml   constants of the analytic operator prices, by GPU generation (presim.cost.analytic)
    collectives.toml constants of the collective models (presim.cost.collectives)
    experts.toml     constants of engines' kernels of a layer's experts (presim.serving.steps.routed_experts)
    power.toml       power of GPUs by class of work (presim.hardware.power)
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType
from typing import Any

import msgspec

from presim.system.files import decode_toml, to_type
from presim.system.files.field_bounds import Real


class SourcedConstant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A constant and where it comes from."""

    meaning: str
    value: Real | tuple[Real, ...]  # two: the ends of an interval
    unit: str  # "1": a ratio
    source: str
    date: str  # ISO
    command: str  # derives it, or shows how well it holds; empty: read from the source


@functools.cache
def figures() -> Mapping[str, SourcedConstant]:
    """All constants of ``figures.toml``, by name."""
    return MappingProxyType(to_type(read("figures.toml"), dict[str, SourcedConstant]))


def value(name: str) -> float:
    """A constant."""
    figure = figures()[name].value
    assert not isinstance(figure, tuple), f"{name} is an interval"
    return figure


def interval(name: str) -> tuple[float, float]:
    """The ends of an interval."""
    figure = figures()[name].value
    assert isinstance(figure, tuple), f"{name} is a single figure"
    low, high = figure
    return low, high


def read(file: str) -> dict[str, Any]:
    """A file of this folder as nested dicts."""
    return decode_toml(resources.files(__name__).joinpath(file).read_text())
