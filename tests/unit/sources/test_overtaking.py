"""Which streams are more urgent, from kernels whose order is worked out by hand."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from presim.engine.simulation_options import Options
from presim.evaluation.evaluate_traces import evaluate
from presim.sources.kineto.overtaking import QueuedKernel, stream_priorities
from presim.sources.readers import open_files
from presim.sources.source import SourceRequest
from presim.trace.builder import TraceBuilder
from presim.trace.job import Job
from presim.trace.schema import Phase, Trace
from presim.trace.signatures import Collective, Elementwise, Gemm
from support.profiles import CLUSTER, exported, program

US = 1_000


def queue(*kernels: tuple[int, int, int, int]) -> list[QueuedKernel]:
    """Kernels by (stream, ready, start, end) in us, in the order of their launches."""
    return [QueuedKernel(stream, ready * US, start * US, end * US) for stream, ready, start, end in kernels]


def overtakes(turns: int, *, urgent: int, other: int) -> list[QueuedKernel]:
    """In each turn of 300 us a product waits while a copy that was launched later runs first."""
    return [
        kernel
        for turn in range(turns)
        for kernel in queue(
            (other, 300 * turn, 300 * turn + 100, 300 * turn + 290), (urgent, 300 * turn, 300 * turn, 300 * turn + 100)
        )
    ]


def test_a_stream_whose_later_launches_run_first_is_more_urgent() -> None:
    assert stream_priorities(overtakes(4, urgent=1, other=0)) == {1: -1}


def test_launches_that_run_in_their_order_show_no_priority() -> None:
    """The second waits for the first, as on any GPU."""
    in_order = [kernel for turn in range(8) for kernel in queue((0, 0, 300 * turn, 300 * turn + 100),
                (1, 300 * turn, 300 * turn + 100, 300 * turn + 200))]  # fmt: skip
    assert stream_priorities(in_order) == {}


def test_a_few_or_mutual_overtakings_are_chance() -> None:
    assert stream_priorities(overtakes(3, urgent=1, other=0)) == {}
    mutual = [*overtakes(8, urgent=1, other=0), *overtakes(8, urgent=0, other=1)]
    assert stream_priorities(mutual) == {}


def prefetching(rank: int, priorities: dict[int, int]) -> Trace:
    """FSDP's order: collectives end while products queue, and copies of a more urgent stream go before the products."""
    build = TraceBuilder(msgspec.structs.replace(program(rank).manifest, stream_priorities=priorities))
    moved = Elementwise(256 << 20, 256 << 20, 128 << 20, "bfloat16", operator="aten::copy_")
    for _ in range(3):
        for layer in range(12):
            for size in (1, 2, 3, 2, 1):
                build.work(Gemm(1024 * size, 4096, 4096, 1, "bfloat16"), host_ns=900, phase=Phase.FORWARD)
            size = (192 + 32 * (layer % 3)) << 20
            build.work(Collective("all_gather", size, "bfloat16", 0), stream=2, phase=Phase.FORWARD)
            build.wait(build.record(stream=2), stream=1)
            build.work(moved, stream=1, phase=Phase.FORWARD)
            copied = build.record(stream=1)
            build.wait(copied, stream=2)
        build.device_sync()
        build.step()
    return build.trace()


@pytest.mark.parametrize("priorities", [{1: -1}, {}])
def test_a_profile_shows_the_priorities_of_the_job_that_it_is_of(tmp_path: Path, priorities: dict[int, int]) -> None:
    job = Job.of([prefetching(0, priorities), prefetching(1, priorities)])
    paths = exported(tmp_path, evaluate(job, CLUSTER, Options(host_factor=1.0)))
    assert open_files(paths, SourceRequest(), "kineto").job().traces[0].manifest.stream_priorities == priorities
