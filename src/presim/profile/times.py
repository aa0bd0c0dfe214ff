"""Reduce the times of a signature's calls to one duration and its uncertainty."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

_MAX_DIFFERENCE = 0.3  # of their mean: the slowest call may take 1.9 times as long as the fastest


def row(calls: Sequence[Sequence[float]]) -> dict[str, float]:
    """The midpoint of the fastest and the slowest call's median, from times in ms, several per call.

    ``spread`` is relative: half the interquartile range or half the distance of the calls, whichever is larger.

    Raises:
        ValueError: no time is left for a call, or the calls differ too much to be represented by one figure.
    """
    medians = [statistics.median(times) for times in calls]
    least, most = min(medians), max(medians)
    middle = (least + most) / 2
    if least <= 0:
        raise ValueError("the kernels launched first take as long as the whole call")
    if (most - least) / 2 > _MAX_DIFFERENCE * middle:
        raise ValueError(f"calls with these bytes take between {least * 1e3:.1f} and {most * 1e3:.1f} us")
    quartiles = [statistics.quantiles(times, n=4) for times in calls]
    own = max((third - first) / 2 for first, _, third in quartiles)
    spread = max(own, (most - least) / 2) / middle
    return {"duration_ns": middle * 1e6, "spread": spread, "samples": sum(map(len, calls))}
