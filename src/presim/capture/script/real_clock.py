"""The real clock, for observers of a script whose own clock may be simulated."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

_REAL_CLOCK = 0x70726573  # a clock id that only the emulated device supports: shim/core/host_clock.cpp


def _is_known() -> bool:
    try:
        time.clock_gettime_ns(_REAL_CLOCK)
    except OSError:
        return False
    return True


# Nanoseconds on a clock that keeps running while the script's simulated clock stands still; only differences are
# meaningful. Without the emulated device, nothing is simulated.
now_ns: Callable[[], int] = (
    functools.partial(time.clock_gettime_ns, _REAL_CLOCK) if _is_known() else time.perf_counter_ns
)
