"""The real clock for code that observes a script whose own clock may be simulated."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

_OWN = 0x70726573  # a clock that only the emulated device knows: shim/core/host_clock.cpp


def _is_known() -> bool:
    try:
        time.clock_gettime_ns(_OWN)
    except OSError:
        return False
    return True


# Nanoseconds on a clock that goes on where the script's stands still; only differences mean something. Without the
# emulated device nothing is simulated.
now_ns: Callable[[], int] = functools.partial(time.clock_gettime_ns, _OWN) if _is_known() else time.perf_counter_ns
