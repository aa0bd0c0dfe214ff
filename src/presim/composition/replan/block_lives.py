"""When blocks of memory that each repetition of a cycle allocates are freed."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from presim.composition.replan.cycles import Cycle, NotPeriodicError, content_numbers
from presim.trace.schema import Kind, Trace

Ints = NDArray[np.int64]


class CycleIndex:
    """Finds entries in the repetitions of a cycle; 0 is the last one, -1 the one before."""

    def __init__(self, cycle: Cycle) -> None:
        self._num_repetitions, self._size = cycle.calls.shape
        self._num_before = len(cycle.head)
        self._calls = np.concatenate([cycle.head, cycle.calls.ravel()])

    @property
    def begin(self) -> int:
        """The first entry."""
        return int(self._calls[0])

    def locate(self, entries: Ints) -> tuple[Ints, Ints, NDArray[np.bool_]]:
        """Repetition and position in it of calls, and which entries are in one."""
        places = np.minimum(np.searchsorted(self._calls, entries), len(self._calls) - 1)
        return *self._coordinates(places), self._calls[places] == entries

    def position_after(self, entries: Ints) -> tuple[Ints, Ints]:
        """Repetition and position of the last call before each entry of the cycle's repetitions."""
        return self._coordinates(np.maximum(np.searchsorted(self._calls, entries) - 1, 0))

    def _coordinates(self, places: Ints) -> tuple[Ints, Ints]:
        rows, positions = np.divmod(places - self._num_before, self._size)
        return rows - self._num_repetitions + 1, positions


@dataclasses.dataclass(frozen=True)
class BlockLife:
    """The lives of the blocks that one call of a cycle allocates.

    A block of which a repetition disposes is freed ``lag`` repetitions after its own, so that the blocks of the last
    ``lag`` ones are freed by what follows the cycle. Others accumulate: all of them are.
    """

    position: int  # of the call that allocates
    lag: int  # -1: they accumulate
    free: int = -1  # entry of a typical free in a cycle
    free_position: int = -1  # the call of the cycle after which it is freed
    last_free: int = -1  # of accumulated blocks: the entry that frees that of the last repetition; -1: none does

    @property
    def accumulates(self) -> bool:
        """Whether no repetition frees them."""
        return self.lag < 0


def block_lives(trace: Trace, cycle: Cycle, defined_at: Ints) -> list[BlockLife]:
    """The life of each block that a cycle allocates and something frees.

    Raises:
        NotPeriodicError: blocks live longer than all repetitions together, so it is not known how long.
    """
    index = CycleIndex(cycle)
    frees = np.flatnonzero(trace.columns["kind"] == Kind.FREE)
    frees = frees[frees > index.begin]
    repetitions, positions, is_inside = index.locate(defined_at[frees])
    order = np.argsort(positions[is_inside], kind="stable")
    frees_inside, repetitions, positions = (column[is_inside][order] for column in (frees, repetitions, positions))
    lives = [
        _life(int(positions[part[0]]), frees_inside[part], repetitions[part], index, cycle.end)
        for part in np.split(np.arange(len(positions)), np.flatnonzero(np.diff(positions)) + 1)
        if len(part)
    ]
    freed_at_last = defined_at[frees[(frees > cycle.calls[-1, 0]) & (frees < cycle.end)]]
    _check_length(trace, cycle, lives, freed_at_last[(freed_at_last >= 0) & (freed_at_last < index.begin)])
    return lives


def _life(position: int, frees: Ints, repetitions: Ints, index: CycleIndex, end: int) -> BlockLife:
    is_within = frees < end
    within = frees[is_within]
    if not len(within):
        of_last = frees[repetitions == 0]
        return BlockLife(position, -1, last_free=int(of_last[0]) if len(of_last) else -1)
    free_repetitions, free_positions = index.position_after(within)
    lags = free_repetitions - repetitions[is_within]
    # A deferred free may come a repetition late; those that come soonest are typical.
    typical = np.flatnonzero(lags == lags.min())[-1]
    return BlockLife(position, int(lags[typical]), int(within[typical]), int(free_positions[typical]))


def end_of_repetitions(trace: Trace, cycle: Cycle, lives: list[BlockLife], defined_at: Ints) -> int:
    """The entry after the last repetition, with the frees that follow its last call as they do in those before.

    Other frees before the next call belong to what follows the cycle.
    """
    last_lag = {life.position: life.lag for life in lives if life.free_position == cycle.calls.shape[1] - 1}
    limit = min([cycle.next_call, *(phase.end for phase in trace.manifest.step.phases if phase.end >= cycle.end)])
    entries = cycle.end + np.flatnonzero(trace.mask(Kind.FREE)[cycle.end : limit])
    end = cycle.end
    repetitions, positions, is_inside = CycleIndex(cycle).locate(defined_at[entries])
    for entry, repetition, position, inside in zip(entries, repetitions, positions, is_inside):
        if not inside or last_lag.get(int(position)) != -repetition:
            break
        end = int(entry) + 1
    return end


def _check_length(trace: Trace, cycle: Cycle, lives: list[BlockLife], older: Ints) -> None:
    """Check that the last repetition frees no older block, by its allocation, of a kind that seems to accumulate."""
    accumulated = cycle.calls[-1][[life.position for life in lives if life.accumulates]]
    contents = content_numbers(trace, np.concatenate([older, accumulated]).astype(np.int64))
    is_unknown = np.isin(contents[: len(older)], contents[len(older) :])
    if is_unknown.any():
        entry = int(older[np.flatnonzero(is_unknown)[0]])
        raise NotPeriodicError(f"the block that entry {entry} allocates lives longer than all repetitions")
