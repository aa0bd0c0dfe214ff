"""Whether a process that others wait for goes on: one that neither runs nor will is not waited for."""

from __future__ import annotations

import os
import socket
import struct
import time
from pathlib import Path

_IDLE_S = 30.0  # a process that used no CPU for so long waits for others
_START_S = 60.0  # until a process has asked its device for something
_STUCK_S = 5.0
_CREDENTIALS = struct.Struct("3i")


class Patience:
    """Watches processes by the CPU time that they use."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, float]] = {}  # rank -> CPU ticks, and since when
        self._stuck_since = 0.0

    def is_over(self, rank: int, connection: socket.socket | None) -> bool:
        """Whether a rank has done nothing for a while; ``connection``: its, where it has one."""
        ticks, limit = (-1, _START_S) if connection is None else (_cpu_ticks(connection), _IDLE_S)
        now = time.monotonic()
        if self._seen.get(rank, (None, 0.0))[0] != ticks:
            self._seen[rank] = (ticks, now)
        return now - self._seen[rank][1] > limit

    def is_stuck(self, now: bool) -> bool:
        """Whether everybody has been waiting for a while."""
        if not now:
            self._stuck_since = 0.0
        elif not self._stuck_since:
            self._stuck_since = time.monotonic()
        return now and time.monotonic() - self._stuck_since > _STUCK_S


def _cpu_ticks(connection: socket.socket) -> int:
    """CPU time of the process at the other end; -2 where it has ended."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process = _CREDENTIALS.unpack(credentials)[0]
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return -2
    return (int(fields[11]) + int(fields[12])) * 1000 // os.sysconf("SC_CLK_TCK")
