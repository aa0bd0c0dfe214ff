"""Bounds on the future of a live engine, so that its answers hold for a while and need not be asked for again."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from presim.engine.state import WAIT

Ints = NDArray[np.int64]

_MOST_OPS = 5_000  # of one stream that are visited: 1 ms
_MOST_STREAMS = 3  # that wait for each other
_SLOWEST = 2  # contention may double what work takes


def least_ns_until(columns: Mapping[str, Ints], index: int, streams: int = _MOST_STREAMS) -> int:
    """Time that passes at least until an op ends, ns: of the work before it on its stream, and what that waits for.

    The op at the head of the stream does not count, because it may be about to end.
    """
    code, target, end = (columns[name] for name in ("code", "target", "end"))
    following, duration = columns["following"], columns["duration"]
    if end[index] >= 0:
        return 0
    head = current = int(columns["head"][columns["slot"][index]])
    least = 0
    for _ in range(_MOST_OPS):
        if current in (-1, index):
            break
        awaited = int(target[current]) if code[current] == WAIT else -1
        if awaited >= 0 and end[awaited] < 0 and streams:
            least = max(least, least_ns_until(columns, awaited, streams - 1))
        elif current != head:
            least += int(duration[current])
        current = int(following[current])
    return least


def launches_within(columns: Mapping[str, Ints], slot: int, time_ns: int) -> int:
    """Number of launches on a full stream that a host certainly issues before a time from now has passed.

    Each of them waits for an op to end.
    """
    following, duration = columns["following"], columns["duration"]
    current = int(columns["head"][slot])
    for launches in range(_MOST_OPS):
        if current < 0 or (time_ns := time_ns - _SLOWEST * int(duration[current])) < 0:
            return launches
        current = int(following[current])
    return _MOST_OPS
