"""Checks of measured figures: a figure that cannot be true is not compared, and the reason is reported."""

from __future__ import annotations

import math
from collections.abc import Mapping

from presim.hardware import Gpu
from presim.result import Result
from presim.units import GIB
from presim.validation.cases import Case

_LONGEST_S = 86400.0  # a step of more than a day is one in another unit
_TYPES = ("float32", "tf32", "float16", "bfloat16", "fp8", "fp4")


def least_share(result: Result, gpu: Gpu) -> float:
    """The part of the predicted step below which no number format of the GPU does its arithmetic; 0: not known."""
    fastest = max((gpu.peak(each) or 0.0 for each in _TYPES), default=0.0)
    if not (fastest and result.hfu and result.flops.peak_per_s):
        return 0.0
    return result.hfu * result.flops.peak_per_s / fastest


def impossible(case: Case, least_step_s: float, memory_bytes: float) -> Mapping[str, str]:
    """Why measured figures cannot be true, by "step_time_s" and "memory"; no entry where they can, or are not given."""
    found = {}
    said, step = case.said("step_time_s"), case.number("step_time_s")
    if said and (step is None or not 0 < step <= _LONGEST_S):
        found["step_time_s"] = f"step_time_s = {said!r} is no duration in seconds"
    elif step and step < least_step_s:
        found["step_time_s"] = f"step_time_s = {said} is faster than the GPU's peak allows"
    memory = case.measured_memory()[0]
    if memory is not None and not 0 < memory < math.inf:
        found["memory"] = f"a measured memory of {memory:g} GiB is none"
    elif memory is not None and memory * GIB > memory_bytes:
        found["memory"] = f"a measured memory of {memory:g} GiB is more than the GPU's {memory_bytes / GIB:.1f}"
    return found
