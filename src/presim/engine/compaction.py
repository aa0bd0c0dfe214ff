"""Removes finished ops from a live engine, so that its memory does not grow with the run.

Ops are dropped from the front of each rank. The remaining ops move down. A pointer to a dropped op becomes -1. To the
loop both mean that there is nothing left to wait for.
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from presim.engine.state import HEAP, PRIORITY, RECORD

Ints = NDArray[np.int64]

# Columns of the loop that hold op numbers. `rank_end` and `host_op` are ends of ranges and never fall below 0.
_POINTERS = (
    "following", "target", "match_next", "lead", "active_next", "match_first", "head", "running", "active_first",
    "host_op", "host_spent", "rank_end", "carrier",
)  # fmt: skip


class FinishedOps:
    """How many ops of each rank were dropped, and the end times of dropped recordings."""

    def __init__(self, ranks: int) -> None:
        self._dropped = [0] * ranks
        self._recordings = [(array("q"), array("q")) for _ in range(ranks)]  # numbers and end times: 16 bytes each

    @property
    def dropped(self) -> int:
        """Number of dropped ops."""
        return sum(self._dropped)

    def index(self, op: int) -> int:
        """Index of an op in the columns. It is negative if the op was dropped."""
        ranks = len(self._dropped)
        return op - self._dropped[op % ranks] * ranks

    def end_ns(self, recording: int) -> int:
        """End of a dropped recording."""
        numbers, ends = self._recordings[recording % len(self._dropped)]
        return ends[bisect.bisect_left(numbers, recording)]

    def drop(
        self, columns: dict[str, Ints], unset: Mapping[str, int], ops: Sequence[int], keep: Sequence[int | None]
    ) -> int:
        """Remove finished ops from the columns and return how many op numbers are still in use.

        Args:
            columns: columns of the loop; changed in place.
            unset: the columns with one value per op, and the value of unused elements.
            ops: by rank, how many ops were ever added.
            keep: by rank, the first op that the caller still needs; None if it needs none.
        """
        ranks = len(ops)
        rows = [had - gone for had, gone in zip(ops, self._dropped)]
        stops = [had if op is None else self.index(op) // ranks for had, op in zip(rows, keep)]
        lost = [_droppable(columns, ranks, rank, stop) for rank, stop in enumerate(stops)]
        for rank, count in enumerate(lost):
            recorded = np.flatnonzero(columns["code"][rank::ranks][:count] == RECORD)
            numbers, ends = self._recordings[rank]
            numbers.extend(((recorded + self._dropped[rank]) * ranks + rank).tolist())
            ends.extend(columns["end"][rank::ranks][recorded].tolist())
            self._dropped[rank] += count
        return _remove(columns, unset, rows, lost)


def _droppable(columns: dict[str, Ints], ranks: int, rank: int, stop: int) -> int:
    """Number of leading ops, up to ``stop``, that have ended and that the rank's host has passed."""
    stop = min(int(columns["host_op"][rank]) // ranks, stop)
    ends = columns["end"][rank::ranks][:stop]
    unknown = (ends < 0) | (ends + columns["sync_latency"][0] > columns["host_time"][rank])
    found = np.flatnonzero(unknown)
    return int(found[0]) if len(found) else stop


def _remove(columns: dict[str, Ints], unset: Mapping[str, int], rows: Sequence[int], lost: Sequence[int]) -> int:
    ranks = len(rows)
    left = max(had - gone for had, gone in zip(rows, lost)) * ranks
    for name, nothing in unset.items():
        old = columns[name]
        new = np.full(max(64, 2 * left), nothing, np.int64)
        for rank, (had, gone) in enumerate(zip(rows, lost)):
            new[rank::ranks][: had - gone] = old[rank::ranks][gone:had]
        columns[name] = new
    down = np.asarray(lost) * ranks
    for name in _POINTERS:
        columns[name][:] = _moved(columns[name], down)
    pending = slice(0, int(columns["counters"][HEAP]))
    items = columns["heap_item"][pending]
    ends = columns["heap_key"][pending] < PRIORITY
    items[ends] = _moved(items[ends], down)
    return left


def _moved(numbers: Ints, down: Ints) -> Ints:
    return np.where(numbers < 0, numbers, np.maximum(-1, numbers - down[numbers % len(down)]))
