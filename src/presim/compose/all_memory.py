"""What happens to memory in all micro-batches of a step, where a trace has only some of them.

The entries between the beginnings of two micro-batches are repeated for those left out, each time for storages of
later micro-batches. The allocator is then replayed over all of it: what it keeps in reserve depends on its whole past.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from presim.compose.names import Ints, Names
from presim.trace.schema import Kind

_MEMORY = (Kind.ALLOC, Kind.FREE, Kind.RETAG)
_COLUMNS = ("kind", "slot", "value", "stream", "scope")  # what is kept of such entries: there are millions
Columns = dict[str, NDArray[Any]]


@dataclasses.dataclass(frozen=True)
class Lacks:
    """Micro-batches that are left out of a step, out of its steady state."""

    period: int  # so many micro-batches repeat together
    times: int

    @property
    def micros(self) -> int:
        """How many are left out."""
        return self.period * self.times


def all_memory(parts: Sequence[Columns], names: Names, lacks: Lacks) -> Columns:
    """The entries of memory, and the ends of steps, of parts laid end to end."""
    wanted = _kinds(*_MEMORY, Kind.STEP)
    made: dict[int, Columns] = {}
    for part in parts:
        if id(part) not in made:
            rows = np.flatnonzero(wanted[part["kind"]])
            begins = np.searchsorted(rows, np.flatnonzero(part["begins"]))
            own = {name: part[name][rows] for name in _COLUMNS}
            made[id(part)] = _repeated(own, part["of_all"][rows], begins, names, lacks) if len(begins) else own
    return {name: np.concatenate([made[id(part)][name] for part in parts]) for name in _COLUMNS}


def without_memory(columns: Columns) -> Columns:
    """The other entries, with room for their objects."""
    rows = np.flatnonzero(~_kinds(*_MEMORY)[columns["kind"]])
    found = {name: column[rows] for name, column in columns.items()}
    begins = np.searchsorted(rows, np.flatnonzero(columns["begins"]))
    found["begins"] = np.zeros(len(rows), np.bool_)
    found["begins"][begins] = True
    return found | {"object": np.zeros(len(rows), np.int64)}


def _kinds(*kinds: Kind) -> NDArray[np.bool_]:
    """By kind, whether it is one of these."""
    table = np.zeros(len(Kind), np.bool_)
    table[list(map(int, kinds))] = True
    return table


def _repeated(columns: Columns, of_all: NDArray[np.bool_], begins: Ints, names: Names, lacks: Lacks) -> Columns:
    first, last, times = int(begins[-1 - lacks.period]), int(begins[-1]), lacks.times
    found = {name: _tiled(column, first, last, times) for name, column in columns.items()}
    slot = columns["slot"]
    moves = (slot >= 0) & (slot < names.storages) & (slot % names.micros > 0)  # the first one's gradients may stay
    moves &= ~of_all
    period, step = last - first, lacks.period
    for time in range(1, times + 1):
        place = last + (time - 1) * period
        found["slot"][place : place + period] += moves[first:last] * np.int32(time * step)
    found["slot"][last + times * period :] += moves[last:] * np.int32(times * step)
    return found


def _tiled(column: NDArray[Any], first: int, last: int, times: int) -> NDArray[Any]:
    """With what lies between the two places so many times more."""
    return np.concatenate([column[:last], np.tile(column[first:last], times), column[last:]])
