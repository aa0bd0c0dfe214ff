"""How fast this machine's CPU is at what hosts of GPUs do: a short loop of Python, timed by CPU time."""

from __future__ import annotations

import time

from presim.hardware.host import PROBE_ITERATIONS

_TIMES = 12  # the best of so many: a busy machine disturbs some of them


def probe_ns() -> int:
    """CPU time of the loop, ns; the whole takes about 10 ms."""
    return min(_once() for _ in range(_TIMES))


def _once() -> int:
    begin = time.thread_time_ns()
    total = 0
    for number in range(PROBE_ITERATIONS):
        total += number * number % 7
    return time.thread_time_ns() - begin
