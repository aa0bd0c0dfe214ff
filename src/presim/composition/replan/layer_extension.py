"""A trace with copies of a middle layer: its calls in their order, what they name, and when their blocks are freed."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from presim.composition.replan.cycles import program_calls
from presim.composition.replan.layer_growth import Calls
from presim.composition.replan.layer_laws import Layout
from presim.composition.replan.layer_names import layer_list, names_of
from presim.composition.replan.layer_regions import find_regions
from presim.composition.replan.object_names import DEFINES, REFERS, definitions
from presim.errors import InputError
from presim.trace.schema import COLUMNS, Kind, Trace

Ints = NDArray[np.int64]


class LayerExtension:
    """The entries of a trace with added layers: calls, what the allocator records after them, and frees.

    Raises:
        InputError: layers do not repeat each other.
    """

    def __init__(self, trace: Trace, num_layers: int, added: int) -> None:
        path, _ = layer_list(trace)
        self._defined_at = definitions(trace)
        entries = program_calls(trace, self._defined_at)
        self.trace, self._entries = trace, entries
        self.calls = Calls(trace, entries, names_of(trace.scopes, path), names_of(trace.operators, path))
        regions = find_regions(trace, entries, self.calls.scopes, self.calls.operators, num_layers)
        if not {1, -1} <= set(regions.steps.tolist()):
            raise InputError(
                f"the layers {path}* of rank {trace.manifest.rank} do not repeat each other in forward and backward "
                "passes, so no law says what further ones do; capture the whole model"
            )
        self.layout = Layout.of(regions, added, len(entries))
        self._call_of_entry = np.full(len(trace) + 1, -1, np.int64)
        self._call_of_entry[entries] = np.arange(len(entries))
        self.sources, self.shifts = self.layout.sources()
        self.is_outside = self.layout.region[self.sources] < 0
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
        freed_after, _ = self.layout.targets(free_call, self.sources, self.shifts)
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

    def extended(self) -> tuple[Trace, Ints]:
        """The trace, and where each number of captured entries is in it now [len(trace) + 1]."""
        trace = self.trace
        columns: dict[str, NDArray[np.generic]] = {name: trace.columns[name][self.entries] for name in COLUMNS}
        columns["value"] = self._least_bytes()[self.entries]
        columns["object"] = self._objects(columns["object"].astype(np.int64))
        blocks = self.position_of_call[self._freed_calls]
        columns["value"][self._free_positions] = columns["value"][blocks]
        return dataclasses.replace(trace, columns=columns), self._ends()

    def _least_bytes(self) -> Ints:
        """Values of captured entries; of what layers allocate, the least: the allocator does not split every block."""
        values = self.trace.columns["value"].astype(np.int64).copy()
        is_block = self.trace.columns["kind"][self._entries] == Kind.ALLOC
        for begin, period, count in zip(
            self.layout.regions.begins, self.layout.regions.periods, self.layout.regions.counts
        ):
            part = self._entries[begin : begin + period * count].reshape(count, period)
            blocks = part[:, is_block[begin : begin + period]]
            values[blocks] = values[blocks].min(axis=0)
        return values

    def _objects(self, objects: Ints) -> Ints:
        """Numbers of the extended trace's objects: of whatever defines one, its own place."""
        captured = np.where(self._defined_at >= 0, self._call_of_entry[self._defined_at], -1)[self._entries]
        defining, lawless = self.layout.targets(captured, self.sources, self.shifts)
        if len(lawless):
            entry = int(self._entries[lawless[0]])
            kind = Kind(int(self.trace.columns["kind"][entry])).name
            raise InputError(
                f"layers refer to different things: {kind} at entry {entry} of rank {self.trace.manifest.rank} follows "
                "no law that would say what another layer refers to; capture the whole model"
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
        images = self.position_of_call[
            self.layout.images(np.arange(len(self._entries)), self.layout.shift_of(np.arange(len(self._entries))))
        ]
        before = np.searchsorted(self._entries, np.arange(len(self.trace) + 1))  # calls among the first so many entries
        ends_by_count: Ints = np.concatenate([[0], images + 1])[before]
        return ends_by_count

    def renamed(self, trace: Trace) -> Trace:
        """The extended trace, in which scopes and operators name the layer that each call is of now."""
        layout, sources, shifts = self.layout, self.sources, self.shifts
        steps = np.concatenate([layout.regions.steps, [0]])[layout.region[sources]]
        tables = {"scope": trace.scopes, "operator": trace.operators}
        columns = dict(trace.columns)
        for name, names in (("scope", self.calls.scopes), ("operator", self.calls.operators)):
            indices = columns[name].astype(np.int64)
            layers = names.layers[indices]
            middle = (int(names.layers.max(initial=0)) + 1) // 2
            shift = np.where(layers > middle, layout.added, 0)
            shift[self.position_of_call] = np.select(
                [steps == 1, steps == -1], [shifts, layout.added - shifts], default=shift[self.position_of_call]
            )
            named = np.flatnonzero(layers >= 0)
            tables[name], indices[named] = names.renamed(tables[name], indices[named], layers[named] + shift[named])
            columns[name] = indices.astype(COLUMNS[name])
        return dataclasses.replace(trace, columns=columns, scopes=tables["scope"], operators=tables["operator"])


def _family(kind: Kind) -> str:
    return DEFINES.get(kind) or REFERS[kind]
