"""Reduces the times of a signature's calls to one duration and its uncertainty."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

_MOST_APART = 0.3  # of their middle: the slowest call may take 1.9 times as long as the fastest


def row(calls: Sequence[Sequence[float]]) -> dict[str, float]:
    """Of times in ms, several of each call: the middle between the fastest and the slowest call, as medians.

    ``spread`` is relative: half the distance of the quartiles, or of the calls where that is more.

    Raises:
        ValueError: nothing is left of a call, or the calls differ by so much that no figure stands for all of them.
    """
    medians = [statistics.median(times) for times in calls]
    least, most = min(medians), max(medians)
    middle = (least + most) / 2
    if least <= 0:
        raise ValueError("what is launched in front takes as long as the whole")
    if (most - least) / 2 > _MOST_APART * middle:
        raise ValueError(f"calls with these bytes take from {least * 1e3:.1f} to {most * 1e3:.1f} us")
    quartiles = [statistics.quantiles(times, n=4) for times in calls]
    own = max((third - first) / 2 for first, _, third in quartiles)
    spread = max(own, (most - least) / 2) / middle
    return {"duration_ns": middle * 1e6, "spread": spread, "samples": sum(map(len, calls))}
