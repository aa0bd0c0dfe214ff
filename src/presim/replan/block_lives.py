"""When blocks of memory that each repetition of a cycle allocates are freed."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from presim.replan.cycles import Cycle
from presim.trace.schema import Kind, Trace

Ints = NDArray[np.int64]


class CycleIndex:
    """Finds entries in the repetitions of a cycle."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._calls = cycle.calls.ravel()

    def locate(self, entries: Ints) -> tuple[Ints, Ints, NDArray[np.bool_]]:
        """Repetition (0 is the last, -1 the one before) and position in it of calls, and which entries are in one."""
        places = np.minimum(np.searchsorted(self._calls, entries), len(self._calls) - 1)
        num_repetitions, size = self._cycle.calls.shape
        return places // size - num_repetitions + 1, places % size, self._calls[places] == entries

    def position_after(self, entries: Ints) -> tuple[Ints, Ints]:
        """Repetition and position of the last call before each entry of the cycle's repetitions."""
        places = np.maximum(np.searchsorted(self._calls, entries) - 1, 0)
        num_repetitions, size = self._cycle.calls.shape
        return places // size - num_repetitions + 1, places % size


@dataclasses.dataclass(frozen=True)
class BlockLife:
    """The lives of the blocks that one call of a cycle allocates."""

    position: int  # of the call that allocates
    free: int  # entry of a typical free in a cycle; -1: repetitions leave their blocks to what follows the cycle
    free_position: int  # the call of the cycle after which it is freed
    alive: tuple[int, ...]  # repetitions whose blocks live on after the last one, ascending
    later_frees: tuple[int, ...]  # the entries that free them, ascending


def block_lives(trace: Trace, cycle: Cycle, defined_at: Ints) -> list[BlockLife]:
    """The life of each block that a cycle allocates and something frees."""
    index = CycleIndex(cycle)
    frees = np.flatnonzero(trace.columns["kind"] == Kind.FREE)
    frees = frees[frees > cycle.calls[0, 0]]
    repetitions, positions, is_inside = index.locate(defined_at[frees])
    lives = []
    order = np.argsort(positions[is_inside], kind="stable")
    frees, repetitions, positions = (column[is_inside][order] for column in (frees, repetitions, positions))
    for part in np.split(np.arange(len(frees)), np.flatnonzero(np.diff(positions)) + 1):
        if len(part):
            lives.append(_life(int(positions[part[0]]), frees[part], repetitions[part], index, cycle.end))
    return lives


def _life(position: int, frees: Ints, repetitions: Ints, index: CycleIndex, end: int) -> BlockLife:
    is_later = frees >= end
    within = frees[~is_later]
    free, free_position = -1, -1
    if len(within):
        free_repetitions, free_positions = index.position_after(within)
        lags = free_repetitions - repetitions[~is_later]
        # A deferred free may come a repetition late; those that come soonest are typical.
        typical = np.flatnonzero(lags == lags.min())[-1]
        free, free_position = int(within[typical]), int(free_positions[typical])
    alive = repetitions[is_later]
    order = np.argsort(alive, kind="stable")
    return BlockLife(position, free, free_position, tuple(alive[order].tolist()), tuple(frees[is_later].tolist()))
