"""Detect that all processes are idle, so that none of them can unblock another."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

_PERIOD_S = 0.1
_PERIODS = 4  # without a tick of CPU time (10 ms) and without a runnable thread


class IdleProcesses:
    """Whether the watched processes are idle, from the states of their threads in /proc. Poll by calling it."""

    def __init__(self) -> None:
        self.processes: Sequence[int] = ()
        self._last: tuple[int, ...] = ()
        self._since = 0
        self._at = 0.0

    def watch(self, processes: Sequence[int]) -> None:
        """Watch these processes from now on."""
        self.processes = tuple(processes)

    def __call__(self) -> bool:
        """Whether no process has done anything for the last few periods."""
        now = time.monotonic()
        if now - self._at < _PERIOD_S:
            return self._since >= _PERIODS
        self._at = now
        states = [_threads(process) for process in self.processes]
        ticks = tuple(spent for spent, _ in states)
        still = ticks == self._last and not any(active for _, active in states) and bool(self.processes)
        self._last = ticks
        self._since = self._since + 1 if still else 0
        return self._since >= _PERIODS


def _threads(process: int) -> tuple[int, bool]:
    """CPU time of a process in ticks, and whether one of its threads runs or waits for a disk."""
    spent, active = 0, False
    for path in Path(f"/proc/{process}/task").glob("*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # the thread has ended
        spent += int(fields[11]) + int(fields[12])
        active |= fields[0] in "RD"
    return spent, active
