"""Detect ranks that cannot proceed before others do.

A rank that waits for another's payload publishes the bell position at which it blocks in its page of the exchange
(shim/libs/nccl_box.h); it is blocked until something else is posted. A rank that waits for a key has a connection that
the store holds; /proc shows which process owns it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping, Set
from pathlib import Path

_MAGIC = b"PRESIMRK"
_HEADER = struct.Struct("<8sqQQ")  # magic, process, end, 1 + the bell's position at which it is blocked
_MOVES = struct.Struct("<I")  # of the bell's page (shim/libs/nccl_mail.cpp)
_ABANDONED, _ABANDONED_OFFSET = struct.pack("<I", 1), 8  # there: no rank waits for calls of others


class BlockedRanks:
    """Tells whether a rank waits for another.

    ``exchange``: directory of the payload exchange; ``waiting``: ports of the clients that wait at the store.
    """

    def __init__(self, exchange: Path, waiting: Callable[[], Set[int]]) -> None:
        self.exchange = exchange
        self.waiting = waiting
        self.processes: Mapping[int, int] = {}  # rank -> process id

    def watch(self, processes: Mapping[int, int]) -> None:
        """Watch these processes, given by rank."""
        self.processes = processes

    def __call__(self, rank: int) -> bool:
        """Whether the rank waits for another one."""
        return self._is_stuck(rank) or self._waits_at_store(rank)

    def release(self) -> bool:
        """Let no rank wait for calls of others any more; False if this was done before, or ranks exchange nothing."""
        try:
            with (self.exchange / "bell").open("r+b", buffering=0) as page:
                page.seek(_ABANDONED_OFFSET)
                if page.read(len(_ABANDONED)) == _ABANDONED:
                    return False
                page.seek(_ABANDONED_OFFSET)
                page.write(_ABANDONED)
        except OSError:
            return False  # a rank alone has no bell
        return True

    def has_ended(self, rank: int) -> bool:
        """Whether the rank's process has ended."""
        return rank in self.processes and not Path(f"/proc/{self.processes[rank]}").exists()

    def cpu_ticks(self, rank: int) -> int:
        """CPU time of a rank's process and its descendants in clock ticks; -1 if unknown."""
        return session_ticks(self.processes[rank]) if rank in self.processes else -1

    def _is_stuck(self, rank: int) -> bool:
        try:
            with (self.exchange / f"rank-{rank}").open("rb") as page, (self.exchange / "bell").open("rb") as bell:
                magic, _, _, stuck_at = _HEADER.unpack(page.read(_HEADER.size))
                (moves,) = _MOVES.unpack(bell.read(_MOVES.size))
        except (OSError, struct.error):
            return False  # not started yet
        return bool(magic == _MAGIC and stuck_at == moves + 1)

    def _waits_at_store(self, rank: int) -> bool:
        ports = self.waiting()
        if not ports or rank not in self.processes:
            return False
        return bool(_sockets_at(ports) & _sockets_of(self.processes[rank]))


def _sockets_at(ports: Set[int]) -> set[str]:
    """Inodes of this machine's IPv4 and IPv6 sockets with these local ports."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if int(fields[1].rpartition(":")[2], 16) in ports:
                inodes.add(fields[9])
    return inodes


def _sockets_of(process: int) -> set[str]:
    inodes = set()
    folder = f"/proc/{process}/fd"
    try:
        for name in os.listdir(folder):
            target = os.readlink(f"{folder}/{name}")
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    except OSError:
        pass  # the process has ended, or the descriptor was closed meanwhile
    return inodes


def session_ticks(leader: int) -> int:
    """CPU time of a session leader and all processes of its session, in clock ticks."""
    total = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if int(fields[3]) == leader:
            total += sum(map(int, fields[11:15]))
    return total
