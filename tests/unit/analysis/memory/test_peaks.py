"""Peaks, what holds them, and the verdict."""

from __future__ import annotations

import msgspec
import pytest

from presim.analysis.memory.blocks import allocated_bytes, find_blocks, reserved_bytes
from presim.analysis.memory.outside_allocator import outside_allocator
from presim.analysis.memory.peaks import analyse_memory, held_at_peak, requested_bytes
from presim.analysis.time.steps import find_steps
from presim.result import Estimate, Held, Memory
from presim.trace.builder import TraceBuilder, default_manifest
from presim.trace.schema import Category, Group, Manifest, Phase, Trace
from presim.trace.signatures import Attention, Collective
from support import fakes, workloads

GIB = 1 << 30


def analysed(trace: Trace, total: int, *, captured_here: bool = True, beyond: int = 0) -> Memory:
    timeline = fakes.simulate(fakes.priced(trace))
    step = find_steps(trace, timeline).steady
    estimates = [Estimate("context", beyond, "test")] if beyond else []
    return analyse_memory(
        trace, timeline, step, device_total_bytes=total, outside_estimates=estimates, captured_here=captured_here
    )


def small_job(**manifest: object) -> Trace:
    build = TraceBuilder(msgspec.structs.replace(default_manifest(), **manifest))
    build.segment(0x1000, 4 * GIB)
    build.alloc(0x1000, 1 * GIB, category=Category.PARAMETER, scope="net.0")
    build.alloc(0x1000 + GIB, 2 * GIB, scope="net.1", phase=Phase.FORWARD)
    build.free(0x1000 + GIB, 2 * GIB)
    build.step()
    return build.trace()


def test_peaks_are_sums_of_live_blocks_and_segments() -> None:
    """Allocated counts blocks, reserved counts segments, both at their largest."""
    memory = analysed(small_job(), 8 * GIB, beyond=GIB)
    assert (memory.peak_allocated_bytes, memory.peak_reserved_bytes) == (3 * GIB, 4 * GIB)
    assert memory.headroom_bytes == 3 * GIB
    assert (memory.fits, memory.verdict) == (True, "Fits with 3.00 GiB to spare.")


def test_a_verdict_names_the_missing_memory() -> None:
    """Both the reserve and the live blocks are too much for the device."""
    memory = analysed(small_job(), 2 * GIB)
    assert (memory.fits, memory.verdict) == (False, "Does not fit: short of 2.00 GiB.")


def test_reserved_memory_of_another_gpu_does_not_prove_a_misfit() -> None:
    """The live blocks would fit, so the sentence says how to know."""
    memory = analysed(small_job(), 4 * GIB, beyond=GIB // 2)
    assert memory.fits is False
    assert memory.verdict == (
        "Does not fit: short of 0.50 GiB including memory that the allocator reserves (the live blocks would fit, "
        "and the allocator may reserve less there; capture for this GPU to find out)."
    )


def test_out_of_memory_names_the_failed_allocation() -> None:
    """The size comes from PyTorch's own message."""
    memory = analysed(workloads.out_of_memory(), 42_297_786_368)
    assert memory.fits is False
    assert memory.requested_bytes == 5 * GIB // 2
    assert memory.verdict == (
        "An allocation of 2.50 GiB failed with 36.0 GiB allocated, 38.0 GiB reserved; 1.11 GiB short."
    )


def test_a_job_that_does_not_fit_gets_advice() -> None:
    """About the two kinds that hold most of it."""
    assert analysed(workloads.out_of_memory(), 42_297_786_368).advice == (
        "Most is activation (24.0 GiB, 66.7%): checkpoint activations, use smaller micro-batches, or split the "
        "sequence (context parallelism); then parameter (12.0 GiB, 33.3%): shard them (FSDP2, ZeRO-3, tensor or "
        "pipeline parallelism) over more GPUs, offload them to the host, or keep them in fewer bits."
    )
    assert analysed(small_job(), 8 * GIB).advice == ""


def test_out_of_memory_on_another_gpu_gives_no_verdict() -> None:
    """A capture that died on 40 GB does not tell whether 80 GB would do."""
    memory = analysed(workloads.out_of_memory(), 80 * GIB, captured_here=False)
    assert memory.fits is None
    assert memory.verdict == "The capture ran out of memory on a100-40gb-sxm; capture again for this GPU to find out."


def test_the_peak_is_broken_down_by_category_and_merged_module() -> None:
    """Layers that differ in their number are one line."""
    trace = small_job()
    by_category, by_module = held_at_peak(trace, allocated_bytes(trace))
    assert by_category == [Held("other", 2 * GIB, 1), Held("parameter", GIB, 1)]
    assert by_module == [Held("net.*", 3 * GIB, 2)]


def test_a_block_has_its_first_category_from_the_start_and_its_last_tag_later() -> None:
    """An activation that becomes a gradient's buffer is an activation until then."""
    build = TraceBuilder()
    build.alloc(64, 512)
    build.alloc(640, 512, category=Category.ACTIVATION)
    build.retag(640, Category.GRADIENT)
    build.retag(64, Category.PARAMETER)
    blocks = find_blocks(build.trace())
    assert blocks.categories_at(1).tolist() == [Category.PARAMETER, Category.ACTIVATION]
    assert blocks.categories_at(9).tolist() == [Category.PARAMETER, Category.GRADIENT]


def test_an_address_that_is_handed_out_again_is_another_block() -> None:
    """Tags and returns belong to the block that lived at the address at the time."""
    build = TraceBuilder()
    for category in (Category.ACTIVATION, Category.TEMPORARY):
        build.alloc(64, 512, category=category)
        build.free(64, 512)
    trace = build.trace()
    blocks = find_blocks(trace)
    assert blocks.free.tolist() == [2, 5]
    assert blocks.categories_at(len(trace)).tolist() == [Category.ACTIVATION, Category.TEMPORARY]
    assert allocated_bytes(trace).tolist() == [512, 512, 0, 512, 512, 0]
    assert not reserved_bytes(trace).any()


@pytest.mark.parametrize(
    ("text", "size"),
    [("Tried to allocate 2.50 GiB.", 5 * GIB // 2), ("Tried to allocate 20.00 MiB (GPU 0", 20 << 20), ("boom", None)],
)
def test_the_size_that_failed_is_read_from_the_message(text: str, size: int | None) -> None:
    """In the units that PyTorch prints."""
    assert requested_bytes(text) == size


def test_only_communicators_that_were_used_hold_buffers() -> None:
    """NCCL sets a communicator up at its first call; one rank alone needs none."""
    groups = (Group("world", (), 8), Group("pair", (), 2), Group("unused", (), 8), Group("lone", (0,), 1))
    build = TraceBuilder(Manifest(world_size=8, rank=0, gpu="x", gpus_per_node=8, script="", groups=groups))
    for group in (0, 1, 3):
        build.work(Collective("all_reduce", 64, "float32", group))
    estimates = outside_allocator(build.trace(), context_bytes=GIB, context_source="test")
    assert [estimate.name for estimate in estimates] == [
        "CUDA context",
        "NCCL communicator world (8 ranks)",
        "NCCL communicator pair (2 ranks)",
    ]
    assert [estimate.bytes >> 20 for estimate in estimates] == [1024, 392, 342]


def test_the_backward_of_cudnn_attention_holds_a_workspace() -> None:
    """One fp32 number per element of the query: 2 x 4 x 128 x 64 of them here; flash attention's is in its operator."""
    build = TraceBuilder()
    for backend in ("cudnn", "flash"):
        for direction in ("forward", "backward"):
            build.work(Attention(direction, 2, 4, 4, 128, 128, 64, 64, True, "bfloat16", backend))
    (estimate,) = outside_allocator(build.trace(), context_bytes=0, context_source="")
    assert (estimate.name, estimate.bytes) == ("cuDNN attention workspace", 4 * 2 * 4 * 128 * 64)


def test_the_timeline_keeps_every_peak() -> None:
    """However few points are kept, the largest of them is the peak of the step."""
    trace = workloads.llama_8b(steps=2)
    memory = analysed(trace, 80 * GIB)
    assert max(memory.timeline.allocated_bytes) == memory.step_peak_allocated_bytes
    assert len(memory.timeline.time_s) <= 128
    assert memory.timeline.time_s == sorted(memory.timeline.time_s)
