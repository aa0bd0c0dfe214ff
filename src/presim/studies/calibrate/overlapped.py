"""Which work of a rank ran alone: beside other work its time holds a slowdown, which is no property of a rate."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from presim.engine.timeline import Timeline
from presim.trace.schema import Kind, Trace

_MOST = 0.02  # share of its time beside other work up to which work counts as alone

Ints = NDArray[np.int64]


def runs_alone(trace: Trace, timeline: Timeline, durations_ns: Ints) -> NDArray[np.bool_]:
    """By entry, whether device work ran without work of other streams beside it.

    A kernel is not alone while a collective waits for other ranks. A collective's own time is its last
    ``durations_ns``: before them it waits.
    """
    is_collective, is_work = trace.mask(Kind.COLLECTIVE), trace.mask(Kind.WORK, Kind.COLLECTIVE)
    stream = trace.columns["stream"]
    start_ns = np.where(is_collective, timeline.end_ns - durations_ns, timeline.start_ns)
    is_isolated = np.zeros(len(trace), np.bool_)
    for number in np.unique(stream[is_work]).tolist():
        entries = np.flatnonzero(is_work & (stream == number))
        other_entries = np.flatnonzero(is_work & (stream != number))
        beside_ns = _covered_ns(
            timeline.start_ns[other_entries], timeline.end_ns[other_entries], timeline.end_ns[entries]
        )
        beside_ns -= _covered_ns(timeline.start_ns[other_entries], timeline.end_ns[other_entries], start_ns[entries])
        is_isolated[entries] = beside_ns <= _MOST * np.maximum(timeline.end_ns[entries] - start_ns[entries], 1)
    return is_isolated


def _covered_ns(starts_ns: Ints, ends_ns: Ints, until_ns: Ints) -> Ints:
    """Time up to each moment in which at least one interval runs."""
    if not len(starts_ns):
        return np.zeros(len(until_ns), np.int64)
    order = np.argsort(starts_ns, kind="stable")
    starts_ns, latest_ns = starts_ns[order], np.maximum.accumulate(ends_ns[order])
    is_first = np.concatenate([[True], starts_ns[1:] > latest_ns[:-1]])
    first = np.flatnonzero(is_first)
    begin_ns, finish_ns = starts_ns[first], latest_ns[np.concatenate([first[1:] - 1, [len(starts_ns) - 1]])]
    before_ns = np.concatenate([[0], np.cumsum(finish_ns - begin_ns)])
    interval = np.searchsorted(begin_ns, until_ns, side="right") - 1
    inside_ns = np.minimum(until_ns, finish_ns[interval]) - begin_ns[interval]
    covered: Ints = np.where(interval < 0, 0, before_ns[np.maximum(interval, 0)] + np.maximum(inside_ns, 0))
    return covered
