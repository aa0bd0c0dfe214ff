"""80 % intervals of a run's figures: simulated at both ends of prices and host overhead, wider for the first token.

What a server does before a prompt's first token differs most between engines and versions: eager host code of prefill
steps, tokenization, queues in front of the scheduler. Published runs say how much longer it takes than simulated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from presim import calibration


def intervals(
    middle: Mapping[str, Any], low: Mapping[str, Any], high: Mapping[str, Any], *, calibrated: bool
) -> dict[str, tuple[float, float]]:
    """Of each figure. ``calibrated``: a benchmark of the deployment itself set the time to the first token."""
    ends = {key: (low[key], middle[key], high[key]) for key in middle if _is_figure(middle[key])}
    found = {key: (min(values), max(values)) for key, values in ends.items()}
    if calibrated:
        return found
    beyond = calibration.value("serving.ttft_beyond")
    return {
        key: (begin, max(end, middle[key] * beyond)) if "_ttft_" in key else (begin, end)
        for key, (begin, end) in found.items()
    }


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
