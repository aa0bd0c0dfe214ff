"""Adds repetitions of a cycle to a trace, with blocks, recordings and launches of their own."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from presim.composition.replan.block_lives import CycleIndex, block_lives, end_of_repetitions
from presim.composition.replan.cycles import Cycle, NotPeriodicError
from presim.composition.replan.insertion import Insertion
from presim.composition.replan.object_names import REFERS
from presim.composition.replan.requests import later, loaders, workers_by_loader
from presim.trace.schema import COLUMNS, Kind, Trace

Ints = NDArray[np.int64]
_ALIGNMENT = 512  # bytes: of a block


@dataclasses.dataclass
class Numbers:
    """Numbers that no entry of the trace has."""

    address: int
    serial: int

    @staticmethod
    def unused_by(trace: Trace) -> Numbers:
        """Greater than all in the trace."""
        objects = trace.columns["object"].astype(np.int64)
        is_block = trace.mask(Kind.ALLOC, Kind.SEGMENT_ALLOC)
        end_addresses = objects[is_block] + trace.columns["value"][is_block].astype(np.int64)
        serials = objects[trace.mask(Kind.EVENT_RECORD, Kind.COLLECTIVE)]
        return Numbers(int(_aligned(end_addresses).max(initial=0)), int(serials.max(initial=0)) + 1)


class Unroller:
    """One cycle of a trace, to be repeated more often after its last repetition.

    ``defined_at``: see `presim.composition.replan.object_names.definitions`.

    Raises:
        NotPeriodicError: the last two repetitions differ.
    """

    def __init__(self, trace: Trace, cycle: Cycle, defined_at: Ints) -> None:
        self._trace, self._cycle, self._defined_at = trace, cycle, defined_at
        self._index = CycleIndex(cycle)
        self._lives = block_lives(trace, cycle, defined_at)
        self._end = end_of_repetitions(trace, cycle, self._lives, defined_at)
        self._check_references()
        loader = loaders(trace, np.arange(len(trace)))
        is_fetch = trace.mask(Kind.FETCH)[cycle.calls[-1]]
        loader_numbers, counts = np.unique(loader[cycle.calls[-1]][is_fetch], return_counts=True)
        self._requests = np.zeros(int(loader.max(initial=-1)) + 2, np.int64)  # in a cycle, by loader; last: for none
        self._requests[loader_numbers] = counts
        self._loader = loader
        self._workers = workers_by_loader(trace)

    def unrolled(self, objects: Ints, added: int, numbers: Numbers) -> tuple[list[Insertion], Ints]:
        """The entries to insert for ``added`` repetitions, and what the trace's own entries name then.

        Args:
            objects: what they name so far.
            added: number of repetitions.
            numbers: to give to what the repetitions define; it is changed to those that are unused then.
        """
        named = self._added_objects(objects, added, numbers)
        return [self._repetitions(named, numbers), *self._accumulated_frees(named)], self._renamed(objects, named)

    def _repetitions(self, named: Ints, numbers: Numbers) -> Insertion:
        """The calls of the added repetitions, with what the allocator does between them."""
        calls, added = self._cycle.calls[-1], len(named)
        disposed = sorted((life for life in self._lives if not life.accumulates), key=lambda life: life.free)
        records = self._allocator_records()
        free_entries, free_positions = (
            np.array([getattr(life, name) for life in disposed], np.int64) for name in ("free", "free_position")
        )
        template = np.concatenate([calls, free_entries, records])
        positions = [np.arange(len(calls)), free_positions, np.searchsorted(calls, records) - 1]
        order = np.argsort(np.concatenate(positions), kind="stable")  # others come after the call that they follow
        columns = {name: np.tile(self._trace.columns[name][template[order]], added) for name in COLUMNS}
        freed = [self._names(np.arange(1, added + 1) - life.lag, life.position, named)[:, None] for life in disposed]
        serials = numbers.serial + np.arange(added * len(records)).reshape(added, -1)
        numbers.serial += serials.size
        columns["object"] = np.concatenate([named, *freed, serials], axis=1)[:, order].ravel()
        return Insertion(self._end, columns)

    def _allocator_records(self) -> Ints:
        """Entries of the last repetition that record events for which nothing waits."""
        entries = np.arange(self._cycle.calls[-1, 0], self._cycle.end)
        is_record = self._trace.columns["kind"][entries] == Kind.EVENT_RECORD
        records: Ints = entries[is_record & ~np.isin(entries, self._cycle.calls[-1])]
        return records

    def _accumulated_frees(self, named: Ints) -> list[Insertion]:
        """Calls that free the accumulated blocks of added repetitions, after that of the last captured one."""
        insertions = []
        for life in self._lives:
            if life.accumulates and life.last_free >= 0:
                columns = {name: np.repeat(self._trace.columns[name][life.last_free], len(named)) for name in COLUMNS}
                columns["object"] = named[:, life.position]
                insertions.append(Insertion(life.last_free + 1, columns))
        return insertions

    def _renamed(self, objects: Ints, named: Ints) -> Ints:
        """What the trace's own entries name: those after the cycle name what the last repetitions define now."""
        renamed, end, added = objects.copy(), self._end, len(named)
        requests = end + np.flatnonzero(self._trace.mask(Kind.FETCH, Kind.FETCH_WAIT)[end:])
        shifts = added * self._requests[self._loader[requests]]
        renamed[requests] = later(objects[requests], shifts, self._workers)
        referring = [kind for kind, defined in REFERS.items() if defined != "request"]
        references = end + np.flatnonzero(self._trace.mask(*referring, Kind.COLLECTIVE)[end:])
        repetitions, positions, is_inside = self._index.locate(self._defined_at[references])
        first_kept = np.full(self._cycle.calls.shape[1], -len(self._cycle.calls) - 1, np.int64)
        for life in self._lives:
            if not life.accumulates:  # an older one is freed late, and not because it is one of the last
                first_kept[life.position] = -life.lag
        is_free = self._trace.mask(Kind.FREE)[references]
        accumulates = np.zeros(self._cycle.calls.shape[1], np.bool_)
        accumulates[[life.position for life in self._lives if life.accumulates]] = True
        is_moved = is_inside & (repetitions > first_kept[positions]) & ~(is_free & accumulates[positions])
        for position in np.unique(positions[is_moved]).tolist():
            rows = is_moved & (positions == position)
            renamed[references[rows]] = self._names(repetitions[rows] + added, position, named)
        return renamed

    def _names(self, repetitions: Ints, position: int, named: Ints) -> Ints:
        """What a call of some repetitions names; those from 1 on are added ones."""
        calls = self._cycle.calls[:, position]
        num_missing = self._cycle.calls.shape[1] - len(self._cycle.head)
        before = self._cycle.head[position - num_missing] if position >= num_missing else -1  # no repetition is so old
        captured = self._trace.columns["object"][np.concatenate([[before], calls])].astype(np.int64)
        names: Ints = np.concatenate([captured, named[:, position]])[repetitions + len(calls)]
        return names

    def _check_references(self) -> None:
        """Calls of the last two repetitions refer to calls at the same distance, or to the same older one."""
        is_request = self._trace.mask(Kind.FETCH, Kind.FETCH_WAIT)[self._cycle.calls[-1]]
        last, earlier = (self._defined_at[self._cycle.calls[row]] for row in (-1, -2))
        places = [self._index.locate(entries) for entries in (last, earlier)]
        (repetition, position, is_inside), (repetition_before, position_before, is_inside_before) = places
        is_same = last == earlier
        is_moved = is_inside & is_inside_before & (repetition_before == repetition - 1) & (position_before == position)
        differs = ~(is_same | is_moved | is_request)
        if differs.any():
            entry = int(self._cycle.calls[-1][np.flatnonzero(differs)[0]])
            kind = Kind(int(self._trace.columns["kind"][entry])).name
            raise NotPeriodicError(f"entry {entry} ({kind}) refers to something else than in the repetition before")

    def _added_objects(self, objects: Ints, added: int, numbers: Numbers) -> Ints:
        """What the calls of the added repetitions name [added, calls]."""
        columns, calls = self._trace.columns, self._cycle.calls[-1]
        kinds, size = columns["kind"][calls], len(calls)
        named = np.tile(objects[calls], (added, 1))
        rows = np.arange(added)[:, None]
        blocks = np.flatnonzero(kinds == Kind.ALLOC)
        sizes = _aligned(np.maximum(columns["value"][calls[blocks]].astype(np.int64), 1))
        named[:, blocks] = numbers.address + rows * sizes.sum() + np.cumsum(sizes) - sizes
        is_launch = (kinds == Kind.COLLECTIVE) & (self._defined_at[calls] == calls)
        serials = np.flatnonzero((kinds == Kind.EVENT_RECORD) | is_launch)
        named[:, serials] = numbers.serial + rows * size + serials
        requests = np.flatnonzero(np.isin(kinds, [Kind.FETCH, Kind.FETCH_WAIT]))
        shifts = (rows + 1) * self._requests[self._loader[calls[requests]]]
        named[:, requests] = later(named[:, requests], shifts, self._workers)
        self._refer(named)
        numbers.address += added * int(sizes.sum())
        numbers.serial += added * size
        return named

    def _refer(self, named: Ints) -> None:
        """Set what added calls refer to: at the same distance as in the last repetition."""
        calls = self._cycle.calls[-1]
        defined_at = self._defined_at[calls]
        repetitions, positions, is_inside = self._index.locate(defined_at)
        is_older = defined_at == self._defined_at[self._cycle.calls[-2]]
        is_request = self._trace.mask(Kind.FETCH, Kind.FETCH_WAIT)[calls]
        for call in np.flatnonzero(is_inside & ~is_older & ~is_request & (defined_at != calls)).tolist():
            rows = np.arange(1, len(named) + 1) + repetitions[call]
            named[:, call] = self._names(rows, int(positions[call]), named)


def _aligned(sizes: Ints) -> Ints:
    return -(-sizes // _ALIGNMENT) * _ALIGNMENT
