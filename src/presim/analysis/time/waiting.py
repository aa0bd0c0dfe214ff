"""Waiting time of collectives for other ranks."""

from __future__ import annotations

import numpy as np

from presim.analysis.time.segments import Ints
from presim.engine.timeline import Timeline
from presim.trace.schema import Kind, Trace


def earliest_starts(trace: Trace, timeline: Timeline, launch_latency_ns: int) -> Ints:
    """By entry, ns: when a collective could have started if it did not wait for other ranks; else the entry's start.

    A collective can start when it has been launched and earlier work on its stream has ended. Calls of one launch run
    concurrently, so all of them can start with the first.
    """
    result = timeline.start_ns.copy()
    on_stream = np.flatnonzero(trace.mask(Kind.WORK, Kind.COLLECTIVE, Kind.EVENT_RECORD, Kind.STREAM_WAIT))
    if not len(on_stream):
        return result
    stream, serial = trace.columns["stream"].astype(np.int64), trace.columns["object"]
    order = on_stream[np.argsort(stream[on_stream], kind="stable")]
    is_collective = trace.mask(Kind.COLLECTIVE)[order]
    begins = np.diff(stream[order], prepend=-1) != 0
    one_launch = is_collective & (serial[order] != 0)
    joins = ~begins & one_launch & np.roll(one_launch, 1) & (serial[order] == np.roll(serial[order], 1))
    offset = np.cumsum(begins) * (timeline.makespan_ns + 1)  # separates streams in one running maximum
    ended = np.maximum.accumulate(timeline.end_ns[order] + offset) - offset
    free = np.where(begins, 0, np.roll(ended, 1))
    first = np.maximum.accumulate(np.where(joins, 0, np.arange(len(order))))  # first call of the launch
    earliest = np.maximum(timeline.issue_ns[order] + launch_latency_ns, free[first])
    result[order] = np.where(is_collective, np.minimum(earliest, timeline.start_ns[order]), timeline.start_ns[order])
    return result
