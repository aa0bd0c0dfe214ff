"""Lower bounds on future times of a live engine, so that callers can reuse its answers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from presim.engine.state import WAIT

Ints = NDArray[np.int64]

_MOST_OPS = 5_000  # ops of one stream to visit: 1 ms
_MOST_STREAMS = 3  # chain of streams that wait for each other
_SLOWEST = 2  # contention may double the time of work


def least_ns_until(columns: Mapping[str, Ints], index: int, streams: int = _MOST_STREAMS) -> int:
    """A lower bound of the time until an op ends, ns: the work before it on its stream, or on a stream it waits for.

    The launch at the head of the stream does not count, because it may be about to end. Of a launch one op counts.
    """
    following, joins, duration = columns["following"], columns["joins"], columns["duration"]
    if columns["end"][index] >= 0:
        return 0
    current = int(columns["head"][columns["slot"][index]])
    least, is_head = 0, True
    for _ in range(_MOST_OPS):
        if current in (-1, index):
            break
        after = int(following[current])
        is_last = after < 0 or not joins[after]
        if _awaits(columns, current):
            least = max(least, least_ns_until(columns, int(columns["target"][current]), streams - 1) if streams else 0)
        elif is_last and not is_head:
            least += int(duration[current])
        is_head &= not is_last
        current = after
    return least


def launches_within(columns: Mapping[str, Ints], slot: int, time_ns: int) -> int:
    """Number of launches on a full stream that a host issues before a time from now has passed.

    Each of them waits for an op to end, and none for an op that waits for another stream or rank.
    """
    following, duration, match = columns["following"], columns["duration"], columns["match"]
    current = int(columns["head"][slot])
    for launches in range(_MOST_OPS):
        if current < 0 or match[current] >= 0 or _awaits(columns, current):
            return launches
        time_ns -= _SLOWEST * int(duration[current])
        if time_ns < 0:
            return launches
        current = int(following[current])
    return _MOST_OPS


def _awaits(columns: Mapping[str, Ints], index: int) -> bool:
    """Whether an op waits for a recording that has not ended."""
    target = int(columns["target"][index]) if columns["code"][index] == WAIT else -1
    return target >= 0 and bool(columns["end"][target] < 0)
