"""Numbers by which a request samples, within the bounds of vLLM's `SamplingParams` (0.33, sampling_params.py).

They change no time here, but a request that vLLM refuses is refused, too.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Bounds:
    """What a number may be, and how vLLM says so."""

    name: str
    words: str  # behind the name
    lowest: float
    highest: float = math.inf
    excludes_lowest: bool = False

    def allow(self, value: float) -> bool:
        """Whether a value is within them."""
        return (value > self.lowest if self.excludes_lowest else value >= self.lowest) and value <= self.highest


BOUNDS = (
    Bounds("presence_penalty", "must be in [-2, 2]", -2, 2),
    Bounds("frequency_penalty", "must be in [-2, 2]", -2, 2),
    Bounds("repetition_penalty", "must be greater than zero", 0, excludes_lowest=True),
    Bounds("temperature", "must be non-negative", 0),
    Bounds("top_p", "must be in (0, 1]", 0, 1, excludes_lowest=True),
    Bounds("top_k", "must be 0 (disable), or at least 1", -1),  # -1: all, as of old
    Bounds("min_p", "must be in [0, 1]", 0, 1),
)


def problem(body: Mapping[str, Any]) -> tuple[str, str, bool] | None:
    """The first number that vLLM refuses: its name, why, and whether it is of another type; None: none."""
    for bounds in BOUNDS:
        value = body.get(bounds.name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            return bounds.name, "Input should be a valid number", True
        if not bounds.allow(value):
            return bounds.name, f"{bounds.name} {bounds.words}, got {value}.", False
    return None
