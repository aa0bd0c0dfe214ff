"""Reduce the times of a signature's calls to one duration and its uncertainty."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

_MAX_DIFFERENCE = 0.3  # of their mean: the slowest call may take 1.9 times as long as the fastest


Span = tuple[int, int, str]  # start and end in ns, name


def row(calls: Sequence[Sequence[float]]) -> dict[str, float]:
    """The midpoint of the fastest and the slowest call's median, from times in ms, several per call.

    ``spread`` is relative: half the interquartile range or half the distance of the calls, whichever is larger.

    Raises:
        ValueError: no time is left for a call, or the calls differ too much to be represented by one figure.
    """
    medians = [statistics.median(times) for times in calls]
    fastest, slowest = min(medians), max(medians)
    middle = (fastest + slowest) / 2
    if fastest <= 0:
        raise ValueError("the kernels launched first take as long as the whole call")
    if (slowest - fastest) / 2 > _MAX_DIFFERENCE * middle:
        raise ValueError(f"calls with these bytes take between {fastest * 1e3:.1f} and {slowest * 1e3:.1f} us")
    quartiles = [statistics.quantiles(times, n=4) for times in calls]
    largest_half_range = max((third - first) / 2 for first, _, third in quartiles)
    spread = max(largest_half_range, (slowest - fastest) / 2) / middle
    return {"duration_ns": middle * 1e6, "spread": spread, "samples": sum(map(len, calls))}


def run_times(spans: list[Span], name: str) -> list[float]:
    """Times in ms of the runs between sweeps; work before the first sweep belongs to none."""
    runs: list[list[Span]] = []
    for span in spans:
        if span[2] == name:
            runs.append([])
        elif runs:
            runs[-1].append(span)
    return [(max(end for _, end, _ in run) - run[0][0]) * 1e-6 for run in runs if run]
