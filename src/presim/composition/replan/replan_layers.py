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

from presim.composition.replan.allocator_pools import pools_of
from presim.composition.replan.insertion import check_memory
from presim.composition.replan.layer_extension import LayerExtension
from presim.composition.replan.layer_growth import (
    Calls,
    Growth,
    check_setup,
    growth_between,
    growth_of_setup,
    growth_with_parameters,
    with_growth,
)
from presim.composition.replan.layer_names import layer_list, names_of
from presim.composition.replan.parameter_bytes import parameter_bytes
from presim.composition.replan.replayed_memory import with_replayed_memory
from presim.composition.replan.reserved_check import sentences_on_reserved
from presim.composition.replan.single_capture import check_alone
from presim.errors import InputError
from presim.trace.schema import Manifest, Trace

Ints = NDArray[np.int64]
_OTHER_MODULES = 3  # embedding, last norm and output layer
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
        raise InputError(
            f"the larger capture has {largest} layers and the other {num_layers}; give --larger a capture with "
            "more, such as 7 beside 5"
        )
    if layers < max(largest, num_layers):
        raise InputError(
            f"the job was captured with {max(largest, num_layers)} layers and cannot be cut to {layers}; choose at "
            f"least {max(largest, num_layers)}"
        )
    check_memory(traces, layers / num_layers if num_layers else 1)
    if larger:
        extended = [
            _confirmed(trace, twin, num_layers, largest, layers)
            for trace, twin in zip(_by_rank(traces), _by_rank(larger), strict=True)
        ]
        evidence = f"A capture of {num_layers} layers, extended to {largest}, equals one of {largest}"
    elif layers == num_layers:
        return list(traces), []
    else:
        extended = [_extended_alone(trace, num_layers, layers) for trace in traces]
        evidence = "Launches over lists of tensors grow with the parameters; no second capture confirms it"
    sentence = (
        f"Extended from {largest or num_layers} to {layers} layers: those added do what a middle one does in each pass "
        f"and each update, and the allocator is replayed. {evidence}."
    )
    return extended, [sentence, *sentences_on_reserved(larger or traces)]


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
    """The larger trace, extended to ``layers``, if the smaller one extended to its size is the same.

    Calls that name no layer are taken as one part of each layer; where that is not the law, as such parts of a few
    other modules, too.
    """
    try:
        return _confirmed_with(trace, larger, (num_layers, largest, layers), 0)
    except InputError as refusal:
        try:
            return _confirmed_with(trace, larger, (num_layers, largest, layers), _OTHER_MODULES)
        except InputError:
            raise refusal from None


def _confirmed_with(trace: Trace, larger: Trace, numbers: tuple[int, int, int], further: int) -> Trace:
    """``numbers``: of layers in both traces and to extend to; ``further``: see `find_regions`."""
    num_layers, largest, layers = numbers
    smaller = LayerExtension(trace, num_layers, largest - num_layers, further)
    extended, positions = smaller.extended()
    extended = smaller.renamed(extended)
    extended = dataclasses.replace(extended, manifest=_manifest(trace.manifest, positions, {}))
    calls = smaller.position_of_call
    path, _ = layer_list(extended)
    compared = Calls(extended, calls, names_of(extended.scopes, path), names_of(extended.operators, path))
    extension = LayerExtension(larger, largest, layers - largest, further)
    growth_ratio = (layers - largest) / (largest - num_layers)
    growth = growth_between(compared, extension.calls, smaller.is_outside, growth_ratio)
    is_outside = [part.layout.region < 0 for part in (smaller, extension)]
    setup_growth, grown_bytes = growth_of_setup(
        smaller.calls, is_outside[0], extension.calls, is_outside[1], growth_ratio
    )
    check_setup(extended, grown_bytes, larger)
    growth = {**growth, **setup_growth}
    model = {
        name: number + round(growth_ratio * (number - trace.manifest.model.get(name, number)))
        for name, number in larger.manifest.model.items()
    }
    return _completed(extension, growth, model)


def _extended_alone(trace: Trace, num_layers: int, layers: int) -> Trace:
    extension = LayerExtension(trace, num_layers, layers - num_layers)
    before, after = (parameter_bytes(part) for part in (trace, extension.extended()[0]))
    outside = extension.layout.region < 0
    other_bytes = before - (after - before) // (layers - num_layers) * num_layers
    check_alone(extension.calls, extension.layout.regions, outside, num_layers, other_bytes)
    growth = growth_with_parameters(extension.calls, outside, num_layers, after / before if before else 1.0)
    return _completed(extension, growth, {})


def _completed(extension: LayerExtension, growth: Growth, model: dict[str, int]) -> Trace:
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


def _manifest(manifest: Manifest, positions: Ints, model: dict[str, int]) -> Manifest:
    """The manifest of an extended trace. What PyTorch itself counted of its memory holds no longer."""
    facts = manifest.step
    phases = tuple(msgspec.structs.replace(phase, end=int(positions[phase.end])) for phase in facts.phases)
    step = msgspec.structs.replace(facts, begin=int(positions[facts.begin]), phases=phases)
    measured = manifest.measured and msgspec.structs.replace(manifest.measured, step_ns=0)
    return msgspec.structs.replace(manifest, step=step, model=model, allocator={}, measured=measured)
