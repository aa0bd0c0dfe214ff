"""80 % intervals of metrics: simulated at both ends of prices and host overhead, wider for the first token.

The time before a prompt's first token differs most between engines and versions: eager host code of prefill steps,
tokenization, queues before the scheduler. The extra width comes from published runs. Where engines prefill apart from
those that decode, their speed decides whether they are the bottleneck, and with it the queue before them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from presim.hardware import constants as calibration
from presim.serving.serving_plan import Kernels


def intervals(
    middle: Mapping[str, Any],
    low: Mapping[str, Any],
    high: Mapping[str, Any],
    kernels: Kernels = "vllm",
    *,
    calibrated: bool,
    fast_prefill: Mapping[str, Any] | None = None,
) -> dict[str, tuple[float, float]]:
    """The interval of each metric, for an engine with these kernels.

    ``calibrated``: TTFT was calibrated with a benchmark of this deployment. ``fast_prefill``: metrics with engines that
    prefill apart and take the shortest time that they may; None without such engines.
    """
    triples = {key: (low[key], middle[key], high[key]) for key in middle}
    figure_triples = {key: values for key, values in triples.items() if all(map(_is_figure, values))}
    bounds_by_key = {key: (min(values), max(values)) for key, values in figure_triples.items()}
    if calibrated:
        return bounds_by_key
    ttft_factor = calibration.value(_beyond(kernels, is_apart=fast_prefill is not None))
    earliest = {key: value for key, value in (fast_prefill or {}).items() if _is_figure(value)}
    return {
        key: (min(begin, earliest.get(key, begin)), max(end, middle[key] * ttft_factor))
        if "_ttft_" in key
        else (begin, end)
        for key, (begin, end) in bounds_by_key.items()
    }


def _beyond(kernels: Kernels, *, is_apart: bool) -> str:
    """The constant of the upper end of a time to the first token."""
    if is_apart:
        return "serving.ttft_beyond_apart"
    return "serving.ttft_beyond_vllm" if kernels == "vllm" else "serving.ttft_beyond"


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
