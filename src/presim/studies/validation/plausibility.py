"""Checks measured figures. Impossible figures are not compared, and the reason is reported."""

from __future__ import annotations

import math
from collections.abc import Mapping

from presim.hardware import Gpu
from presim.result import Result
from presim.studies.validation.cases import Case
from presim.units import GIB

_LONGEST_S = 86400.0  # a step of more than a day is in another unit
_TYPES = ("float32", "tf32", "float16", "bfloat16", "fp8", "fp4")


def least_share(result: Result, gpu: Gpu) -> float:
    """Minimum time of the step's arithmetic in the GPU's fastest format, as share of the predicted step; 0: unknown."""
    fastest = max((gpu.peak(dtype) or 0.0 for dtype in _TYPES), default=0.0)
    if not (fastest and result.hfu and result.flops.peak_per_s):
        return 0.0
    return result.hfu * result.flops.peak_per_s / fastest


def impossible(case: Case, least_step_s: float, memory_bytes: float) -> Mapping[str, str]:
    """Reasons why measured figures are impossible, by "step_time_s" and "memory". Possible figures have no entry."""
    reasons = {}
    text, step = case.value("step_time_s"), case.number("step_time_s")
    if text and (step is None or not 0 < step <= _LONGEST_S):
        reasons["step_time_s"] = f"step_time_s = {text!r} is not a duration in seconds"
    elif step and step < least_step_s:
        reasons["step_time_s"] = f"step_time_s = {text} is shorter than the GPU's peak allows"
    memory = case.measured_memory()[0]
    if memory is not None and not 0 < memory < math.inf:
        reasons["memory"] = f"a measured memory of {memory:g} GiB is not possible"
    elif memory is not None and memory * GIB > memory_bytes:
        reasons["memory"] = f"a measured memory of {memory:g} GiB is more than the GPU's {memory_bytes / GIB:.1f}"
    return reasons
