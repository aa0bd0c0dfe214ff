"""Removes finished ops from a live engine, so that its memory does not grow with the run.

A rank's ops are forgotten from the first one on. What stays has its numbers moved down; what points to a forgotten op
then points nowhere, which means the same to the loop: there is nothing left to wait for.
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from presim.engine.state import HEAP, PRIORITY, RECORD

Ints = NDArray[np.int64]

# Columns of the loop that hold numbers of ops; those that stand for an end (`rank_end`, `host_op`) never get below 0.
_POINTERS = (
    "following", "target", "match_next", "lead", "beside_next", "match_first", "head", "running", "beside",
    "host_op", "host_spent", "rank_end", "carrier",
)  # fmt: skip


class Past:
    """What was forgotten of each rank: how many of its ops, and when the recordings among them ended."""

    def __init__(self, ranks: int) -> None:
        self._gone = [0] * ranks
        self._recordings = [(array("q"), array("q")) for _ in range(ranks)]  # numbers and ends: 16 bytes each

    @property
    def ops(self) -> int:
        """How many there are."""
        return sum(self._gone)

    def place(self, op: int) -> int:
        """Index of an op in the columns; negative if it was dropped."""
        ranks = len(self._gone)
        return op - self._gone[op % ranks] * ranks

    def end_ns(self, recording: int) -> int:
        """End of a dropped recording."""
        numbers, ends = self._recordings[recording % len(self._gone)]
        return ends[bisect.bisect_left(numbers, recording)]

    def take(
        self, columns: dict[str, Ints], unset: Mapping[str, int], ops: Sequence[int], keep: Sequence[int | None]
    ) -> int:
        """Take what can be forgotten out of the columns; how many numbers of ops are then in use.

        ``unset``: the columns that have a value for each op, and what stands where there is none. ``ops``: by rank,
        how many it had in all. ``keep``: the first op that the caller needs.
        """
        ranks = len(ops)
        rows = [had - gone for had, gone in zip(ops, self._gone)]
        stops = [had if op is None else self.place(op) // ranks for had, op in zip(rows, keep)]
        lost = [_forgettable(columns, ranks, rank, stop) for rank, stop in enumerate(stops)]
        for rank, count in enumerate(lost):
            recorded = np.flatnonzero(columns["code"][rank::ranks][:count] == RECORD)
            numbers, ends = self._recordings[rank]
            numbers.extend(((recorded + self._gone[rank]) * ranks + rank).tolist())
            ends.extend(columns["end"][rank::ranks][recorded].tolist())
            self._gone[rank] += count
        return _take(columns, unset, rows, lost)


def _forgettable(columns: dict[str, Ints], ranks: int, rank: int, stop: int) -> int:
    """How many of a rank's first ops, up to ``stop``, its host has passed and knows the ends of."""
    stop = min(int(columns["host_op"][rank]) // ranks, stop)
    ends = columns["end"][rank::ranks][:stop]
    unknown = (ends < 0) | (ends + columns["sync_latency"][0] > columns["host_time"][rank])
    found = np.flatnonzero(unknown)
    return int(found[0]) if len(found) else stop


def _take(columns: dict[str, Ints], unset: Mapping[str, int], rows: Sequence[int], lost: Sequence[int]) -> int:
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
