"""Lower bounds on future times of a live engine, so that callers can reuse its answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from presim.engine.state import WAIT

Ints = NDArray[np.int64]

_MOST_OPS = 5_000  # ops to visit: 5 ms


class Bound(NamedTuple):
    """What certainly passes before an op ends."""

    least_ns: int  # from now on
    # Launches on the full stream that a host can issue long before: each waits for an op of the stream to end.
    launches: int


class _Path(NamedTuple):
    """Work that has to be done before an op can begin."""

    least_ns: int = 0
    along_ns: int = -1  # of it, from the head of the full stream on; -1: it does not come from there
    launches: int = 0  # of the full stream that it contains

    def and_then(self, duration_ns: int) -> _Path:
        along_ns = self.along_ns + duration_ns if self.along_ns >= 0 else -1
        return _Path(self.least_ns + duration_ns, along_ns, self.launches)


def bound_until(columns: Mapping[str, Ints], index: int, now_ns: int, full_slot: int, share: int) -> Bound:
    """A bound of the time until an op ends: the work before it on its stream, and on streams that this one waits for.

    Of a launch one op counts. ``launches`` are those after which at least 1 / ``share`` of ``least_ns`` still passes:
    the ops for which they wait come before this one, however long they take.
    """
    if columns["end"][index] >= 0:
        return Bound(max(0, int(columns["end"][index]) - now_ns), 0)
    pending = _PendingWork(columns, now_ns, full_slot)
    path = pending.path_to(index)
    until_ns = path.along_ns - path.least_ns // share
    launches = np.searchsorted(pending.launch_ends_ns[: path.launches], until_ns, side="right")
    return Bound(path.least_ns, int(launches))


class _PendingWork:
    """Paths to the ops of all streams; each stream is walked once, from its head on."""

    def __init__(self, columns: Mapping[str, Ints], now_ns: int, full_slot: int) -> None:
        self.launch_ends_ns: list[int] = []  # of the full stream: sum of the durations up to each launch
        self._columns = columns
        self._now_ns = now_ns
        self._full_slot = full_slot
        self._paths: dict[int, _Path] = {}  # to each op visited
        self._walks: dict[int, Iterator[_Path]] = {}  # of each slot
        self._unvisited = _MOST_OPS

    def path_to(self, index: int) -> _Path:
        """The path to an op that has not ended, or the part of it that was visited before `_MOST_OPS` were."""
        slot = int(self._columns["slot"][index])
        if slot not in self._walks:
            self._walks[slot] = self._walk(slot)
        path = _Path()
        while index not in self._paths:
            reached = next(self._walks[slot], None)
            if reached is None:
                return path
            path = reached
        return self._paths[index]

    def _walk(self, slot: int) -> Iterator[_Path]:
        """Visit the ops of a stream that have not started; yields the path to each."""
        following, joins, duration = (self._columns[name] for name in ("following", "joins", "duration"))
        running_ns, current = self._running_ns(slot), int(self._columns["head"][slot])
        runs_beside = current >= 0 and bool(joins[current])  # it belongs to the launch that is running
        path = _Path(0 if runs_beside else running_ns)
        along_ns = 0  # full stream: work before this op, whatever it waits for
        while current >= 0 and self._unvisited:
            self._unvisited -= 1
            if slot == self._full_slot:
                path = _Path(path.least_ns, along_ns, len(self.launch_ends_ns))
            self._paths[current] = path
            yield path
            after = int(following[current])
            if _awaits(self._columns, current):
                path = _later(path, self.path_to(int(self._columns["target"][current])))
            elif after < 0 or not joins[after]:
                path = path.and_then(int(duration[current]))
                if runs_beside:
                    path, runs_beside = path._replace(least_ns=max(path.least_ns, running_ns)), False
                along_ns += int(duration[current])
                if slot == self._full_slot:
                    self.launch_ends_ns.append(along_ns)
            current = after

    def _running_ns(self, slot: int) -> int:
        """Work that is left of what runs on a stream."""
        columns = self._columns
        op, left_ns = int(columns["active_first"][columns["slot_rank"][slot]]), 0
        while op >= 0:
            if columns["slot"][op] == slot:
                lead = columns["lead"][op]
                left_ns = max(left_ns, int(columns["since"][lead] + columns["work_left"][lead]) - self._now_ns)
            op = int(columns["active_next"][op])
        return left_ns


def _later(path: _Path, other: _Path) -> _Path:
    """The path to an op that waits for both; it comes from the full stream if one of them does."""
    along = max(path, other, key=lambda reached: reached.along_ns)
    return _Path(max(path.least_ns, other.least_ns), along.along_ns, along.launches)


def _awaits(columns: Mapping[str, Ints], index: int) -> bool:
    """Whether an op waits for a recording that has not ended."""
    target = int(columns["target"][index]) if columns["code"][index] == WAIT else -1
    return target >= 0 and bool(columns["end"][target] < 0)
