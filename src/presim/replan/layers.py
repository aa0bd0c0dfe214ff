"""Changes the number of layers of a captured job.

Each layer does what its neighbours do, in each pass and each update. So a capture of a few layers has everything that
a model of more does: further ones are copies of a middle layer, with blocks, recordings and launches of their own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError
from presim.replan.allocator_pools import pools_of
from presim.replan.cycles import program_calls
from presim.replan.layer_growth import Calls, Growth, growth_between, growth_with_parameters, with_growth
from presim.replan.layer_laws import Layout
from presim.replan.layer_names import layer_list, names_of
from presim.replan.layer_regions import find_regions
from presim.replan.object_names import DEFINES, REFERS, definitions
from presim.replan.parameter_bytes import parameter_bytes
from presim.replan.replayed_memory import with_replayed_memory
from presim.replan.single_capture import check_alone
from presim.trace.schema import COLUMNS, Kind, Manifest, Trace

Ints = NDArray[np.int64]
_FEWEST = 5  # fewer may be equal parts of one layer, as the products of an attention


def with_layers(traces: Sequence[Trace], layers: int, larger: Sequence[Trace] = ()) -> tuple[list[Trace], list[str]]:
    """The traces of a job whose model has another number of layers, and sentences for the reader.

    ``larger``: the same ranks of a capture with more layers, which is extended if it confirms the law, and which says
    how work outside of layers grows. Without it, launches over lists of tensors grow with the parameters.

    Raises:
        InputError: the layers are too few or not alike, or were more than that, or the larger capture differs.
    """
    num_layers, largest = _number_of_layers(traces), _number_of_layers(larger) if larger else 0
    if largest and largest <= num_layers:
        raise InputError(f"the larger capture has {largest} layers and the other {num_layers}; exchange them")
    if layers < max(largest, num_layers):
        raise InputError(
            f"the job was captured with {max(largest, num_layers)} layers and cannot be cut to {layers}; choose at "
            f"least {max(largest, num_layers)}"
        )
    if larger:
        extended = [
            _confirmed(trace, twin, num_layers, largest, layers)
            for trace, twin in zip(_by_rank(traces), _by_rank(larger), strict=True)
        ]
        how = f"A capture of {num_layers} layers, extended to {largest}, equals one of {largest}"
    elif layers == num_layers:
        return list(traces), []
    else:
        extended = [_extended_alone(trace, num_layers, layers) for trace in traces]
        how = "Launches over lists of tensors grow with the parameters; no second capture confirms it"
    sentence = (
        f"Extended from {largest or num_layers} to {layers} layers: those added do what a middle one does in each pass "
        f"and each update, and the allocator is replayed. {how}."
    )
    return extended, [sentence]


def _by_rank(traces: Sequence[Trace]) -> list[Trace]:
    return sorted(traces, key=lambda trace: trace.manifest.rank)


def _number_of_layers(traces: Sequence[Trace]) -> int:
    numbers = {number for trace in traces for number in layer_list(trace)[1]}
    if len(numbers) < _FEWEST:
        raise InputError(
            f"this job has {len(numbers) or 'no'} numbered layers, and the first and the last may differ from those "
            f"between; capture it with at least {_FEWEST}"
        )
    return len(numbers)


def _confirmed(trace: Trace, larger: Trace, num_layers: int, largest: int, layers: int) -> Trace:
    """The larger trace, extended to ``layers``, if the smaller one extended to its size is the same."""
    smaller = _Extension(trace, num_layers, largest - num_layers)
    extended = smaller.renamed(smaller.extended()[0])
    calls = smaller.position_of_call
    path, _ = layer_list(extended)
    compared = Calls(extended, calls, names_of(extended.scopes, path), names_of(extended.operators, path))
    extension = _Extension(larger, largest, layers - largest)
    further = (layers - largest) / (largest - num_layers)
    growth = growth_between(compared, extension.calls, smaller.is_outside, further)
    model = {
        name: number + round(further * (number - trace.manifest.model.get(name, number)))
        for name, number in larger.manifest.model.items()
    }
    return _completed(extension, growth, model)


def _extended_alone(trace: Trace, num_layers: int, layers: int) -> Trace:
    extension = _Extension(trace, num_layers, layers - num_layers)
    before, after = (parameter_bytes(part) for part in (trace, extension.extended()[0]))
    outside = extension.layout.region < 0
    other_bytes = before - (after - before) // (layers - num_layers) * num_layers
    check_alone(extension.calls, extension.layout.regions, outside, num_layers, other_bytes)
    growth = growth_with_parameters(extension.calls, outside, num_layers, after / before if before else 1.0)
    return _completed(extension, growth, {})


def _completed(extension: _Extension, growth: Growth, model: dict[str, int]) -> Trace:
    """``model``: numbers of parameters, as in `Manifest.model`."""
    extended, positions = extension.extended()
    outside = np.flatnonzero(extension.is_outside)
    extended = with_growth(
        extension.renamed(extended), extension.position_of_call[outside], extension.sources[outside].tolist(), growth
    )
    pools = pools_of(extension.trace, extension.calls.scopes, extension.calls.operators)[extension.entries]
    extended, later_positions = with_replayed_memory(extended, pools)
    manifest = _manifest(extension.trace.manifest, later_positions[positions], model)
    return dataclasses.replace(extended, manifest=manifest)


class _Extension:
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
        # captured call -> entries behind it; a call may have several
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
        captured = np.concatenate([calls[self.sources], record_entries, free_entry[self.sources[blocks]]])
        keys = np.concatenate([new_calls, behind, freed_after[blocks]])
        order = np.lexsort((captured, np.repeat([0, 1, 1], [len(new_calls), len(behind), len(blocks)]), keys))
        self.entries = captured[order]  # captured entry by new entry
        self.position_of_call = np.empty(len(new_calls), np.int64)
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
        ends: Ints = np.concatenate([[0], images + 1])[before]
        return ends

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


def _manifest(manifest: Manifest, positions: Ints, model: dict[str, int]) -> Manifest:
    """The manifest of an extended trace. What PyTorch itself counted of its memory holds no longer."""
    facts = manifest.step
    phases = tuple(msgspec.structs.replace(phase, end=int(positions[phase.end])) for phase in facts.phases)
    step = msgspec.structs.replace(facts, begin=int(positions[facts.begin]), phases=phases)
    measured = manifest.measured and msgspec.structs.replace(manifest.measured, step_ns=0)
    return msgspec.structs.replace(manifest, step=step, model=model, allocator={}, measured=measured)
