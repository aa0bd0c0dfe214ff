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
        numbers, end_times = self._recordings[recording % len(self._dropped)]
        return end_times[bisect.bisect_left(numbers, recording)]

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
        rows = [op_count - dropped_count for op_count, dropped_count in zip(ops, self._dropped)]
        stops = [op_count if op is None else self.index(op) // ranks for op_count, op in zip(rows, keep)]
        drop_counts = [_droppable(columns, ranks, rank, stop) for rank, stop in enumerate(stops)]
        for rank, count in enumerate(drop_counts):
            recorded = np.flatnonzero(columns["code"][rank::ranks][:count] == RECORD)
            numbers, end_times = self._recordings[rank]
            numbers.extend(((recorded + self._dropped[rank]) * ranks + rank).tolist())
            end_times.extend(columns["end"][rank::ranks][recorded].tolist())
            self._dropped[rank] += count
        return _remove(columns, unset, rows, drop_counts)


def _droppable(columns: dict[str, Ints], ranks: int, rank: int, stop: int) -> int:
    """Number of leading ops, up to ``stop``, that have ended and that the rank's host has passed."""
    stop = min(int(columns["host_op"][rank]) // ranks, stop)
    end_times = columns["end"][rank::ranks][:stop]
    is_unfinished = (end_times < 0) | (end_times + columns["sync_latency"][0] > columns["host_time"][rank])
    unfinished = np.flatnonzero(is_unfinished)
    return int(unfinished[0]) if len(unfinished) else stop


def _remove(columns: dict[str, Ints], unset: Mapping[str, int], rows: Sequence[int], drop_counts: Sequence[int]) -> int:
    ranks = len(rows)
    num_remaining = max(op_count - drop_count for op_count, drop_count in zip(rows, drop_counts)) * ranks
    for name, unset_value in unset.items():
        old = columns[name]
        new = np.full(max(64, 2 * num_remaining), unset_value, np.int64)
        for rank, (op_count, drop_count) in enumerate(zip(rows, drop_counts)):
            new[rank::ranks][: op_count - drop_count] = old[rank::ranks][drop_count:op_count]
        columns[name] = new
    index_shifts = np.asarray(drop_counts) * ranks
    for name in _POINTERS:
        columns[name][:] = _shifted_pointers(columns[name], index_shifts)
    pending = slice(0, int(columns["counters"][HEAP]))
    items = columns["heap_item"][pending]
    is_end = columns["heap_key"][pending] < PRIORITY
    items[is_end] = _shifted_pointers(items[is_end], index_shifts)
    return num_remaining


def _shifted_pointers(numbers: Ints, index_shifts: Ints) -> Ints:
    return np.where(numbers < 0, numbers, np.maximum(-1, numbers - index_shifts[numbers % len(index_shifts)]))
