"""Policies for the experts that tokens go to, where a router's choices are not computed: parsed from text.

``balanced`` deals tokens out in turn; ``uniform[:SEED]`` draws experts evenly; ``zipf:S[:SEED]`` draws the r-th most
popular expert in proportion to ``r**-S``; ``file:PATH`` draws in proportion to the numbers in a file, one per expert.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from presim.errors import InputError
from presim.system.files import read_text

FORMS = "balanced, uniform, uniform:SEED, zipf:S, zipf:S:SEED or file:PATH"


@dataclasses.dataclass(frozen=True)
class RoutingPolicy:
    """A parsed policy."""

    kind: Literal["balanced", "uniform", "zipf", "loads"] = "balanced"
    seed: int = 0
    skew: float = 0.0  # of zipf
    loads: tuple[float, ...] = ()  # by expert

    @property
    def is_random(self) -> bool:
        """Whether draws depend on the seed."""
        return self.kind in ("uniform", "zipf")

    def seeded(self, seed: int) -> str:
        """The text of a random policy with another seed."""
        return f"zipf:{self.skew}:{seed}" if self.kind == "zipf" else f"uniform:{seed}"


def parse(text: str, option: str = "routing=") -> RoutingPolicy:
    """The policy of a text. ``option``: how the user gave it, for messages about its file.

    Raises:
        ValueError: the text has none of these forms.
        InputError: the file cannot be read, or its numbers are no loads.
    """
    kind, *arguments = text.split(":", 1) if text.startswith("file:") else text.split(":")
    if kind == "balanced" and not arguments:
        return RoutingPolicy()
    if kind == "uniform" and len(arguments) <= 1:
        return RoutingPolicy("uniform", _natural(arguments[0] if arguments else "0"))
    if kind == "zipf" and 1 <= len(arguments) <= 2:
        return RoutingPolicy("zipf", _natural(arguments[1] if arguments[1:] else "0"), _number(arguments[0]))
    if kind == "file" and arguments and arguments[0]:
        return RoutingPolicy("loads", loads=_loads(arguments[0], option))
    raise ValueError(text)


def _natural(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError(text)
    return value


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _loads(path: str, option: str) -> tuple[float, ...]:
    """Read a file of expert loads: numbers separated by blanks, commas or newlines."""
    words = read_text(path, f"give {option}file:PATH a file with one number per expert").replace(",", " ").split()
    try:
        loads = tuple(_number(word) for word in words)
    except ValueError as error:
        raise InputError(f"{option}file:{path}: expected a file with one number per expert ({error})") from error
    if not loads or min(loads) < 0 or sum(loads) == 0:
        raise InputError(f"{option}file:{path}: loads must not be negative, nor all zero; got {list(loads[:8])}")
    return loads
