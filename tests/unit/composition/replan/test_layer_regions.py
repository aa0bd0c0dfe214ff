"""What repeats with each layer, and what is only as long."""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np
import pytest

from presim.composition.replan.cycles import program_calls
from presim.composition.replan.layer_growth import Calls, check_setup, growth_of_setup, with_growth
from presim.composition.replan.layer_names import names_of
from presim.composition.replan.layer_regions import Regions, find_regions
from presim.composition.replan.object_names import definitions
from presim.errors import InputError
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Phase, Trace
from presim.trace.signatures import Copy, Elementwise
from support.replanned_programs import kernel

LAYERS = 5


def step_of(num_buckets: int, num_updates: int) -> Trace:
    """A step of five layers, with a wait for each bucket of gradients, and updates of lists of parameters."""
    build = TraceBuilder()
    for layers, phase in ((range(LAYERS), Phase.FORWARD), (reversed(range(LAYERS)), Phase.BACKWARD)):
        for layer in layers:
            for part in (1, 2):
                build.work(kernel(part), scope=f"model.layers.{layer}.mlp", phase=phase)
    recording = build.record(stream=1)
    for _ in range(num_buckets):
        build.wait(recording, stream=0)
    build.work(kernel(98), phase=Phase.OTHER)
    for _ in range(num_updates):
        build.work(kernel(99), phase=Phase.OPTIMIZER)
    build.step()
    return build.trace()


def regions_of(trace: Trace, further: int) -> Regions:
    calls = program_calls(trace, definitions(trace))
    names = (names_of(trace.scopes, "layers."), names_of(trace.operators, "layers."))
    return find_regions(trace, calls, *names, LAYERS, further)


@pytest.mark.parametrize(
    ("num_buckets", "further", "counts"),
    [
        (LAYERS, 0, [LAYERS]),
        (LAYERS + 2, 0, []),
        (LAYERS + 2, 3, [LAYERS + 2]),
        (LAYERS - 1, 3, [LAYERS - 1]),
    ],
)
def test_unnamed_repetitions_may_be_of_other_modules_too(num_buckets: int, further: int, counts: list[int]) -> None:
    regions = regions_of(step_of(num_buckets, 1), further)
    assert [int(count) for count, step in zip(regions.counts, regions.steps) if not step] == counts
    assert sorted(step for step in regions.steps.tolist() if step) == [-1, 1]


def test_launches_over_lists_of_tensors_are_no_parts_of_layers() -> None:
    assert 0 not in regions_of(step_of(1, LAYERS + 1), 3).steps


def setup_of(num_layers: int, buffer_bytes: int) -> Trace:
    """A model's blocks before its first step: of each layer, of the embedding, and a flat buffer of all."""
    build = TraceBuilder()
    for layer in range(num_layers):
        build.alloc(layer + 1, 3 << 20)
    build.alloc(90, 5 << 20)
    build.alloc(91, buffer_bytes)
    trace = build.trace()
    step = msgspec.structs.replace(trace.manifest.step, begin=len(trace))
    return dataclasses.replace(trace, manifest=msgspec.structs.replace(trace.manifest, step=step))


def calls_of(trace: Trace) -> Calls:
    entries = program_calls(trace, definitions(trace))
    return Calls(trace, entries, names_of(trace.scopes, "layers."), names_of(trace.operators, "layers."))


def test_flat_buffers_of_all_layers_grow_as_between_two_captures() -> None:
    """By 4 MiB a layer from 5 to 7 layers, and so from 7 to 32."""
    smaller, larger = (calls_of(setup_of(layers, (8 + 4 * layers) << 20)) for layers in (5, 7))
    is_outside = [np.arange(len(calls.entries)) >= layers for calls, layers in ((smaller, 5), (larger, 7))]
    growth, grown_bytes = growth_of_setup(smaller, is_outside[0], larger, is_outside[1], (32 - 7) / (7 - 5))
    assert grown_bytes == 8 << 20
    ((call, factors),) = growth.items()
    assert (call, round((36 << 20) * factors["value"])) == (8, 136 << 20)


def test_memory_before_the_steps_has_to_agree() -> None:
    """Up to what the allocator may add to each large block."""
    check_setup(setup_of(7, 280 << 20), 80 << 20, setup_of(7, 360 << 20))
    check_setup(setup_of(7, 352 << 20), 0, setup_of(7, 360 << 20))
    with pytest.raises(InputError, match=r"makes 0\.38 GiB that last, and layers alike would make 0\.30 GiB"):
        check_setup(setup_of(7, 280 << 20), 0, setup_of(7, 360 << 20))


def test_copies_beside_kernels_grow_by_what_they_have() -> None:
    build = TraceBuilder()
    build.work(Elementwise(bytes_read=100, bytes_written=200, elements=50, dtype="float32"))
    build.work(Copy(direction="d2d", bytes=300))
    trace, entries = build.trace(), [0, 1]
    factors = {"bytes_read": 2.0, "bytes": 3.0}
    grown = with_growth(trace, np.array(entries), entries, dict.fromkeys(entries, factors))
    kernel_after, copy_after = (grown.signatures[number] for number in grown.columns["signature"].tolist())
    assert (kernel_after.bytes_read, kernel_after.bytes_written, copy_after.bytes) == (200, 200, 900)
