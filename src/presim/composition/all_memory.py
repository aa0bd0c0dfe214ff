"""Memory events of all micro-batches of a step whose trace contains only some of them.

The entries between the starts of two micro-batches are repeated for the omitted ones, with the storages of later
micro-batches. The allocator is then replayed over all entries, because its reserved memory depends on its whole
history.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from presim.composition.names import Ints, Names
from presim.trace.schema import Kind

_MEMORY = (Kind.ALLOC, Kind.FREE, Kind.RETAG)
_COLUMNS = ("kind", "slot", "value", "stream", "scope")  # what is kept of such entries: there are millions
Columns = dict[str, NDArray[Any]]


@dataclasses.dataclass(frozen=True)
class Lacks:
    """Micro-batches that the trace omits from the steady state of a step."""

    period: int  # number of micro-batches that repeat as a unit
    times: int

    @property
    def micros(self) -> int:
        """Number of omitted micro-batches."""
        return self.period * self.times


def all_memory(parts: Sequence[Columns], names: Names, lacks: Lacks) -> Columns:
    """Memory entries and step ends of all parts, in order, with omitted micro-batches filled in."""
    is_needed_kind = _kinds(*_MEMORY, Kind.STEP)
    memory_by_part: dict[int, Columns] = {}
    for part in parts:
        if id(part) not in memory_by_part:
            rows = np.flatnonzero(is_needed_kind[part["kind"]])
            begins = np.searchsorted(rows, np.flatnonzero(part["begins"]))
            memory_columns = {name: part[name][rows] for name in _COLUMNS}
            memory_by_part[id(part)] = (
                _repeat_micro_batches(memory_columns, part["of_all"][rows], begins, names, lacks)
                if len(begins)
                else memory_columns
            )
    return {name: np.concatenate([memory_by_part[id(part)][name] for part in parts]) for name in _COLUMNS}


def without_memory(columns: Columns) -> Columns:
    """All entries except memory entries, with an empty column for objects."""
    rows = np.flatnonzero(~_kinds(*_MEMORY)[columns["kind"]])
    remaining_columns = {name: column[rows] for name, column in columns.items()}
    begins = np.searchsorted(rows, np.flatnonzero(columns["begins"]))
    remaining_columns["begins"] = np.zeros(len(rows), np.bool_)
    remaining_columns["begins"][begins] = True
    return remaining_columns | {"object": np.zeros(len(rows), np.int64)}


def _kinds(*kinds: Kind) -> NDArray[np.bool_]:
    """Boolean table over entry kinds: true for the given ones."""
    table = np.zeros(len(Kind), np.bool_)
    table[list(map(int, kinds))] = True
    return table


def _repeat_micro_batches(
    columns: Columns, of_all: NDArray[np.bool_], begins: Ints, names: Names, lacks: Lacks
) -> Columns:
    first, last, times = int(begins[-1 - lacks.period]), int(begins[-1]), lacks.times
    full_columns = {name: _tile_period(column, first, last, times) for name, column in columns.items()}
    slot = columns["slot"]
    # storages of the first micro-batch (gradients) may live longer
    moves = (slot >= 0) & (slot < names.storages) & (slot % names.micros > 0)
    moves &= ~of_all
    period, step = last - first, lacks.period
    for time in range(1, times + 1):
        period_start = last + (time - 1) * period
        full_columns["slot"][period_start : period_start + period] += moves[first:last] * np.int32(time * step)
    full_columns["slot"][last + times * period :] += moves[last:] * np.int32(times * step)
    return full_columns


def _tile_period(column: NDArray[Any], first: int, last: int, times: int) -> NDArray[Any]:
    """With what lies between the two places so many times more."""
    return np.concatenate([column[:last], np.tile(column[first:last], times), column[last:]])
