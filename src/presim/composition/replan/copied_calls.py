"""A trace whose calls are copied in another order: what copies name, and when their blocks are freed."""

from __future__ import annotations

import dataclasses
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from presim.composition.replan.object_names import DEFINES, REFERS
from presim.errors import InputError
from presim.trace.schema import COLUMNS, Kind, Trace

Ints = NDArray[np.int64]


class CallLayout(Protocol):
    """Where the calls of a new trace come from, and what they refer to."""

    @property
    def repeated(self) -> str:
        """What is copied, for sentences: layers."""
        ...

    def sources(self) -> tuple[Ints, Ints]:
        """For each call of the new trace, the captured one that it copies, and the number of the copy."""
        ...

    def targets(self, captured: Ints, sources: Ints, shifts: Ints) -> tuple[Ints, Ints]:
        """What the new trace's calls refer to, -1 for nothing, and the captured calls for which no law holds.

        ``captured``: what captured calls refer to, -1 for nothing.
        """
        ...

    def free_places(self, captured: Ints, sources: Ints, shifts: Ints) -> Ints:
        """The calls of the new trace after which blocks are freed that its calls allocate, -1 for none.

        ``captured``: the call after which the block of each captured call is freed, -1 for none.
        """
        ...

    def places(self) -> Ints:
        """Where each captured call is in the new trace."""
        ...


class CopiedCalls:
    """The entries of a new trace: calls, what the allocator records after them, and frees.

    ``entries``: calls of the captured trace; ``defined_at``: see
    `presim.composition.replan.object_names.definitions`.
    """

    def __init__(self, trace: Trace, entries: Ints, defined_at: Ints, layout: CallLayout) -> None:
        self.trace, self.layout = trace, layout
        self._entries, self._defined_at = entries, defined_at
        self._call_of_entry = np.full(len(trace) + 1, -1, np.int64)
        self._call_of_entry[entries] = np.arange(len(entries))
        self.sources, self.shifts = layout.sources()
        self._assemble()

    def _assemble(self) -> None:
        trace, calls = self.trace, self._entries
        previous_call = np.searchsorted(calls, np.arange(len(trace)), side="right") - 1
        records = np.flatnonzero(trace.mask(Kind.EVENT_RECORD) & (self._call_of_entry[:-1] < 0))
        frees = np.flatnonzero(trace.mask(Kind.FREE) & (self._defined_at >= 0))
        new_calls = np.arange(len(self.sources))
        order = np.argsort(previous_call[records], kind="stable")
        counts = np.bincount(np.maximum(previous_call[records], 0), minlength=len(calls))
        firsts = np.concatenate([[0], np.cumsum(counts)])[:-1]
        repeats = counts[self.sources]
        behind = np.repeat(new_calls, repeats)
        within = np.arange(len(behind)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        record_entries = records[order][np.repeat(firsts[self.sources], repeats) + within]
        free_call = np.full(len(calls), -1, np.int64)  # by allocating call: the call before its free
        free_entry = np.full(len(calls), -1, np.int64)
        allocating = self._call_of_entry[self._defined_at[frees]]
        free_call[allocating], free_entry[allocating] = previous_call[frees], frees
        freed_after = self.layout.free_places(free_call, self.sources, self.shifts)
        blocks = np.flatnonzero(freed_after >= 0)
        freed_after = np.maximum(freed_after, new_calls)  # where no law holds, not before it is there
        captured = np.concatenate([calls[self.sources], record_entries, free_entry[self.sources[blocks]]])
        keys = np.concatenate([new_calls, behind, freed_after[blocks]])
        order = np.lexsort((captured, np.repeat([0, 1, 1], [len(new_calls), len(behind), len(blocks)]), keys))
        self.entries = captured[order]  # captured entry by new entry
        inverse = np.empty(len(order), np.int64)
        inverse[order] = np.arange(len(order))
        self.position_of_call = inverse[: len(new_calls)]
        self._record_positions = inverse[len(new_calls) : len(new_calls) + len(behind)]
        self._free_positions, self._freed_calls = inverse[len(new_calls) + len(behind) :], blocks

    def trace_with(self, values: Ints) -> tuple[Trace, Ints]:
        """The trace, and where each number of captured entries is in it now [len(trace) + 1].

        ``values``: of captured entries.
        """
        trace = self.trace
        columns: dict[str, NDArray[np.generic]] = {name: trace.columns[name][self.entries] for name in COLUMNS}
        columns["value"] = values[self.entries]
        columns["object"] = self._objects(columns["object"].astype(np.int64))
        blocks = self.position_of_call[self._freed_calls]
        columns["value"][self._free_positions] = columns["value"][blocks]
        return dataclasses.replace(trace, columns=columns), self._ends()

    def _objects(self, objects: Ints) -> Ints:
        """Numbers of the extended trace's objects: of whatever defines one, its own place."""
        captured = np.where(self._defined_at >= 0, self._call_of_entry[self._defined_at], -1)[self._entries]
        defining, lawless = self.layout.targets(captured, self.sources, self.shifts)
        if len(lawless):
            entry = int(self._entries[lawless[0]])
            kind = Kind(int(self.trace.columns["kind"][entry])).name
            raise InputError(
                f"{self.layout.repeated} refer to different things: {kind} at entry {entry} of rank "
                f"{self.trace.manifest.rank} follows no law that would say what another of them refers to; capture the "
                "whole model"
            )
        kinds = self.trace.columns["kind"][self._entries[self.sources]]
        is_named = np.isin(kinds, [kind for kind in (*DEFINES, *REFERS) if "request" not in _family(kind)])
        is_named &= defining >= 0
        named = np.flatnonzero(is_named)
        objects[self.position_of_call[named]] = self.position_of_call[defining[named]] + 1
        objects[self._record_positions] = self._record_positions + 1
        objects[self._free_positions] = self.position_of_call[self._freed_calls] + 1
        return objects

    def _ends(self) -> Ints:
        """Numbers of entries after as many captured ones; what follows a call is with it."""
        images = self.position_of_call[self.layout.places()]
        before = np.searchsorted(self._entries, np.arange(len(self.trace) + 1))  # calls among the first so many entries
        ends_by_count: Ints = np.concatenate([[0], images + 1])[before]
        return ends_by_count


def _family(kind: Kind) -> str:
    return DEFINES.get(kind) or REFERS[kind]
