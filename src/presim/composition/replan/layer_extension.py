"""A trace with copies of a middle layer: its calls in their order, what they name, and when their blocks are freed."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from presim.composition.replan.copied_calls import CopiedCalls
from presim.composition.replan.cycles import program_calls
from presim.composition.replan.layer_growth import Calls
from presim.composition.replan.layer_laws import CallOrigins
from presim.composition.replan.layer_names import layer_list, names_of
from presim.composition.replan.layer_regions import find_regions
from presim.composition.replan.object_names import definitions
from presim.errors import InputError
from presim.trace.schema import COLUMNS, Kind, Trace

Ints = NDArray[np.int64]


class LayerExtension:
    """The entries of a trace with added layers: calls, what the allocator records after them, and frees.

    Raises:
        InputError: layers do not repeat each other.
    """

    def __init__(self, trace: Trace, num_layers: int, added: int, further: int = 0) -> None:
        path, _ = layer_list(trace)
        defined_at = definitions(trace)
        entries = _without_host_setup(trace, program_calls(trace, defined_at))
        self.trace, self._entries = trace, entries
        self.calls = Calls(trace, entries, names_of(trace.scopes, path), names_of(trace.operators, path))
        regions = find_regions(trace, entries, self.calls.scopes, self.calls.operators, num_layers, further)
        if not {1, -1} <= set(regions.steps.tolist()):
            raise InputError(
                f"the layers {path}* of rank {trace.manifest.rank} do not repeat each other in forward and backward "
                "passes, so no law says what further ones do; capture the whole model"
            )
        self.layout = CallOrigins.of(regions, added, len(entries))
        self._copied = CopiedCalls(trace, entries, defined_at, self.layout)
        self.sources, self.shifts = self._copied.sources, self._copied.shifts
        self.entries, self.position_of_call = self._copied.entries, self._copied.position_of_call
        self.is_outside = self.layout.region[self.sources] < 0

    def extended(self) -> tuple[Trace, Ints]:
        """The trace, and where each number of captured entries is in it now [len(trace) + 1]."""
        return self._copied.trace_with(self._least_bytes())

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


def _without_host_setup(trace: Trace, calls: Ints) -> Ints:
    """Calls without work on host memory before the steps, which the first of several equal layers does alone."""
    is_early = np.arange(len(trace)) < trace.manifest.step.begin
    return calls[~(trace.mask(Kind.HOST_CALL, Kind.HOST_WAIT) & is_early)[calls]]
