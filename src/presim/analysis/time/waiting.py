"""How long each collective waits at the head of its stream for other ranks."""

from __future__ import annotations

import numpy as np

from presim.analysis.time.segments import Ints
from presim.engine.timeline import Timeline
from presim.trace.schema import Kind, Trace


def turns(trace: Trace, timeline: Timeline, launch_latency_ns: int) -> Ints:
    """By entry: for a collective, when it could have started with all members there; else its start, ns.

    That is when it had been launched and what precedes it on its stream had ended. Calls of one launch run side by
    side, so each has its turn with the first.
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
    offset = np.cumsum(begins) * (timeline.makespan_ns + 1)  # keeps streams apart in one running maximum
    ended = np.maximum.accumulate(timeline.end_ns[order] + offset) - offset
    free = np.where(begins, 0, np.roll(ended, 1))
    first = np.maximum.accumulate(np.where(joins, 0, np.arange(len(order))))  # of its launch
    turn = np.maximum(timeline.issue_ns[order] + launch_latency_ns, free[first])
    result[order] = np.where(is_collective, np.minimum(turn, timeline.start_ns[order]), timeline.start_ns[order])
    return result
