"""80 % intervals of metrics: simulated at both ends of prices and host overhead, wider for the first token.

The time before a prompt's first token differs most between engines and versions: eager host code of prefill steps,
tokenization, queues before the scheduler. The extra width comes from published runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from presim import constants as calibration


def intervals(
    middle: Mapping[str, Any], low: Mapping[str, Any], high: Mapping[str, Any], *, calibrated: bool
) -> dict[str, tuple[float, float]]:
    """The interval of each metric. ``calibrated``: TTFT was calibrated with a benchmark of this deployment."""
    triples = {key: (low[key], middle[key], high[key]) for key in middle}
    ends = {key: values for key, values in triples.items() if all(map(_is_figure, values))}
    found = {key: (min(values), max(values)) for key, values in ends.items()}
    if calibrated:
        return found
    ttft_factor = calibration.value("serving.ttft_beyond")
    return {
        key: (begin, max(end, middle[key] * ttft_factor)) if "_ttft_" in key else (begin, end)
        for key, (begin, end) in found.items()
    }


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
