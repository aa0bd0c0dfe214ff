"""Measure the CPU time that other processes used during a capture, because it lengthens measured host time."""

from __future__ import annotations

import os
import time
from pathlib import Path

_STATISTICS = Path("/proc/stat")
_IDLE = (3, 4)  # indices of idle and iowait in /proc/stat, see proc_stat(5)
_COUNTED = 8  # columns up to steal; guest time is already part of user and nice


class BackgroundLoad:
    """Measures from its creation on, without this process's own threads."""

    def __init__(self) -> None:
        self._busy_s, self._own_s, self._at_s = _busy_s(), time.process_time(), time.monotonic()

    def share(self) -> float:
        """Share of all CPUs' time used by other processes, 0 to 1; 0 if the system does not report it."""
        spent_s = (time.monotonic() - self._at_s) * (os.cpu_count() or 1)
        others_s = _busy_s() - self._busy_s - (time.process_time() - self._own_s)
        return round(min(max(others_s / spent_s, 0.0), 1.0), 2) if spent_s > 0 else 0.0


def _busy_s() -> float:
    """CPU time of all processes of the machine in seconds."""
    try:
        times = [int(text) for text in _STATISTICS.read_text().split("\n", 1)[0].split()[1 : _COUNTED + 1]]
    except (OSError, ValueError):
        return 0.0
    return (sum(times) - sum(times[column] for column in _IDLE if column < len(times))) / os.sysconf("SC_CLK_TCK")
