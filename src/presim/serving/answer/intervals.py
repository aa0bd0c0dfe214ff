"""80 % intervals of metrics: simulated at both ends of prices and host overhead, wider for the first token.

The time before a prompt's first token differs most between engines and versions: eager host code of prefill steps,
tokenization, queues before the scheduler. The extra width comes from published runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from presim import constants as calibration
from presim.serving.plan import Kernels


def intervals(
    middle: Mapping[str, Any],
    low: Mapping[str, Any],
    high: Mapping[str, Any],
    kernels: Kernels = "vllm",
    *,
    calibrated: bool,
) -> dict[str, tuple[float, float]]:
    """The interval of each metric, for an engine with these kernels.

    ``calibrated``: TTFT was calibrated with a benchmark of this deployment.
    """
    triples = {key: (low[key], middle[key], high[key]) for key in middle}
    figure_triples = {key: values for key, values in triples.items() if all(map(_is_figure, values))}
    bounds_by_key = {key: (min(values), max(values)) for key, values in figure_triples.items()}
    if calibrated:
        return bounds_by_key
    ttft_factor = calibration.value("serving.ttft_beyond_vllm" if kernels == "vllm" else "serving.ttft_beyond")
    return {
        key: (begin, max(end, middle[key] * ttft_factor)) if "_ttft_" in key else (begin, end)
        for key, (begin, end) in bounds_by_key.items()
    }


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
