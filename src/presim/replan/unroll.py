"""Adds repetitions of a cycle to a trace, with blocks, recordings and launches of their own."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from presim.replan.block_lives import CycleIndex, block_lives
from presim.replan.cycles import Cycle
from presim.replan.insertion import Insertion
from presim.replan.object_names import REFERS
from presim.trace.schema import COLUMNS, Kind, Trace, fetch_worker

Ints = NDArray[np.int64]
_ALIGNMENT = 512  # bytes: of a block
_ADDED_REQUESTS = 1 << 23  # number of the first one, of 24 bits
_REQUEST_BITS = 24


class NotPeriodicError(ValueError):
    """Repetitions of a cycle differ in more than the objects that they name."""


@dataclasses.dataclass
class Numbers:
    """Numbers that no entry of the trace has."""

    address: int
    serial: int
    request: int = _ADDED_REQUESTS

    @staticmethod
    def unused_by(trace: Trace) -> Numbers:
        """Greater than all in the trace."""
        kinds, objects = trace.columns["kind"], trace.columns["object"].astype(np.int64)
        is_block = np.isin(kinds, [Kind.ALLOC, Kind.SEGMENT_ALLOC])
        is_serial = np.isin(kinds, [Kind.EVENT_RECORD, Kind.COLLECTIVE])
        block_ends = objects[is_block] + trace.columns["value"][is_block].astype(np.int64)
        return Numbers(int(_aligned(block_ends).max(initial=0)), int(objects[is_serial].max(initial=0)) + 1)


class Unroller:
    """One cycle of a trace, to be repeated ``added`` times more after its last repetition.

    ``defined_at``: see `presim.replan.object_names.definitions`. ``numbers``: taken from, for the added repetitions.

    Raises:
        NotPeriodicError: the last two repetitions differ.
    """

    def __init__(self, trace: Trace, cycle: Cycle, defined_at: Ints, added: int, numbers: Numbers) -> None:
        self._trace, self._cycle, self._defined_at, self._added = trace, cycle, defined_at, added
        self._index = CycleIndex(cycle)
        self._lives = block_lives(trace, cycle, defined_at)
        self._check_references()
        self._objects = self._added_objects(numbers)

    def insertions(self) -> list[Insertion]:
        """The repetitions to add, and calls that free what each of them leaves to the end of the step."""
        calls, frees = self._cycle.calls[-1], [life for life in self._lives if life.free >= 0]
        records = self._allocator_records()
        free_entries, free_positions = (
            np.array([getattr(life, name) for life in frees], np.int64) for name in ("free", "free_position")
        )
        template = np.concatenate([calls, free_entries, records])
        positions = [np.arange(len(calls)), free_positions, np.searchsorted(calls, records) - 1]
        order = np.argsort(np.concatenate(positions), kind="stable")  # others come after the call that they follow
        columns = {name: np.tile(self._trace.columns[name][template[order]], self._added) for name in COLUMNS}
        freed = [self._freed_in_cycles(life.position, life.alive)[:, None] for life in frees]
        serials = np.tile(self._trace.columns["object"][records].astype(np.int64), (self._added, 1))
        columns["object"] = np.concatenate([self._objects, *freed, serials], axis=1)[:, order].ravel()
        return [Insertion(self._cycle.end, columns), *self._accumulated_frees()]

    def _allocator_records(self) -> Ints:
        """Entries of the last repetition that record events for which nothing waits."""
        entries = np.arange(self._cycle.calls[-1, 0], self._cycle.end)
        is_record = self._trace.columns["kind"][entries] == Kind.EVENT_RECORD
        records: Ints = entries[is_record & ~np.isin(entries, self._cycle.calls[-1])]
        return records

    def renamed(self, objects: Ints) -> Ints:
        """Objects of all entries of the trace: what follows the cycle names those of the last repetitions now."""
        renamed = objects.copy()
        for life in self._lives:
            if life.free >= 0:  # the oldest blocks are freed in added repetitions, the youngest after them
                blocks = np.concatenate([self._blocks(life.position, life.alive), self._objects[:, life.position]])
                renamed[list(life.later_frees)] = blocks[self._added :]
        kinds = [kind for kind in REFERS if kind != Kind.FREE]
        later = self._cycle.end + np.flatnonzero(np.isin(self._trace.columns["kind"][self._cycle.end :], kinds))
        repetitions, positions, is_inside = self._index.locate(self._defined_at[later])
        for entry, repetition, position in zip(later[is_inside], repetitions[is_inside], positions[is_inside]):
            renamed[entry] = self._object_of(int(repetition) + self._added, int(position))
        return renamed

    def _object_of(self, repetition: int, position: int) -> int:
        """What a call of a repetition names, which may be an added one."""
        if repetition > 0:
            return int(self._objects[repetition - 1, position])
        return int(self._trace.columns["object"][self._cycle.calls[repetition - 1, position]])

    def _blocks(self, position: int, repetitions: tuple[int, ...]) -> Ints:
        return np.array([self._object_of(repetition, position) for repetition in repetitions], np.int64)

    def _freed_in_cycles(self, position: int, alive: tuple[int, ...]) -> Ints:
        """The block that each added repetition frees: first in, first out."""
        return np.concatenate([self._blocks(position, alive), self._objects[:, position]])[: self._added]

    def _accumulated_frees(self) -> list[Insertion]:
        """Calls that free the blocks of added repetitions that no repetition frees, after those of the others."""
        insertions = []
        for life in self._lives:
            if life.free >= 0 or len(life.alive) < len(self._cycle.calls):
                continue
            last_free = life.later_frees[-1]
            columns = {name: np.repeat(self._trace.columns[name][last_free], self._added) for name in COLUMNS}
            columns["object"] = self._objects[:, life.position]
            insertions.append(Insertion(last_free + 1, columns))
        return insertions

    def _check_references(self) -> None:
        """Calls of the last two repetitions refer to calls at the same distance, or to the same older one."""
        last, earlier = (self._defined_at[self._cycle.calls[row]] for row in (-1, -2))
        places = [self._index.locate(entries) for entries in (last, earlier)]
        (repetition, position, is_inside), (repetition_before, position_before, is_inside_before) = places
        is_same = last == earlier
        is_moved = is_inside & is_inside_before & (repetition_before == repetition - 1) & (position_before == position)
        if not np.all(is_same | is_moved):
            entry = int(self._cycle.calls[-1][np.flatnonzero(~(is_same | is_moved))[0]])
            kind = Kind(int(self._trace.columns["kind"][entry])).name
            raise NotPeriodicError(f"entry {entry} ({kind}) refers to something else than in the repetition before")

    def _added_objects(self, numbers: Numbers) -> Ints:
        """What the calls of the added repetitions name [added, calls]."""
        columns, calls = self._trace.columns, self._cycle.calls[-1]
        kinds, size = columns["kind"][calls], len(calls)
        objects = np.tile(columns["object"][calls].astype(np.int64), (self._added, 1))
        rows = np.arange(self._added)[:, None]
        bytes_ = _aligned(np.where(kinds == Kind.ALLOC, columns["value"][calls].astype(np.int64), 0))
        block_ends = np.cumsum(bytes_)
        blocks = np.flatnonzero(kinds == Kind.ALLOC)
        objects[:, blocks] = numbers.address + rows * block_ends[-1] + (block_ends - bytes_)[blocks]
        serials = np.flatnonzero(np.isin(kinds, [Kind.EVENT_RECORD, Kind.COLLECTIVE]))
        objects[:, serials] = numbers.serial + rows * size + serials
        for position in np.flatnonzero(kinds == Kind.FETCH).tolist():
            workers = self._workers(position)
            objects[:, position] = (workers << _REQUEST_BITS) + numbers.request + rows[:, 0] * size + position
        self._refer(objects)
        numbers.address += self._added * int(block_ends[-1])
        numbers.serial += self._added * size
        numbers.request += self._added * size
        return objects

    def _workers(self, position: int) -> Ints:
        """Workers that added repetitions ask for a batch: they take turns as in the repetitions before."""
        workers = fetch_worker(self._trace.columns["object"][self._cycle.calls[:, position]].astype(np.int64))
        turn = len(np.unique(workers))
        return workers[len(workers) - turn + np.arange(self._added) % turn]

    def _refer(self, objects: Ints) -> None:
        """Set what added calls refer to: at the same distance as in the last repetition."""
        calls = self._cycle.calls
        defined_at = self._defined_at[calls[-1]]
        repetitions, positions, is_inside = self._index.locate(defined_at)
        refers = is_inside & (defined_at != calls[-1]) & (defined_at != self._defined_at[calls[-2]])
        for call in np.flatnonzero(refers).tolist():
            lag, position = -int(repetitions[call]), int(positions[call])
            num_own = max(0, self._added - lag)  # of added repetitions that refer to an added one
            objects[self._added - num_own :, call] = objects[:num_own, position]
            for row in range(self._added - num_own):
                objects[row, call] = self._object_of(row + 1 - lag, position)


def _aligned(sizes: Ints) -> Ints:
    return -(-sizes // _ALIGNMENT) * _ALIGNMENT
