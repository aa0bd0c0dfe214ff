"""Counting what a trace holds."""

from __future__ import annotations

import msgspec

from presim.trace.builder import TraceBuilder
from presim.trace.schema import Group, Manifest, Phase
from presim.trace.signatures import Collective, Copy, Gemm
from presim.trace.trace_summary import CollectiveCount, StreamCount, Summary, summarize


def example() -> Summary:
    groups = (Group(name="dp", ranks=(0, 1), size=2),)
    build = TraceBuilder(
        Manifest(
            world_size=2, rank=1, gpu="h100-sxm", gpus_per_node=8, script="", groups=groups, stream_priorities={1: -1}
        )
    )
    gemm = Gemm(m=8, n=8, k=8, batch=1, dtype="float32")
    for _ in range(3):
        build.work(gemm, host_ns=10, phase=Phase.FORWARD)
    build.wait(build.record(stream=0), stream=1)
    build.work(Collective(kind="all_reduce", bytes=100, dtype="float32", group=0), stream=1)
    build.work(Collective(kind="all_reduce", bytes=50, dtype="float32", group=0), stream=1)
    build.work(Collective(kind="broadcast", bytes=7, dtype="float32", group=5), stream=1)
    build.work(Copy(direction="h2d", bytes=4))
    build.step()
    return summarize(build.trace())


def test_everything_is_counted_once() -> None:
    summary = example()
    assert (summary.entries, summary.steps, summary.host_ns) == (10, 1, 30)
    assert summary.kinds == {"work": 4, "collective": 3, "event_record": 1, "stream_wait": 1, "step": 1}
    assert summary.phases == {"forward": 3, "other": 4}
    assert summary.streams == (StreamCount(0, 0, 4, 0, 0), StreamCount(1, -1, 0, 3, 1))
    assert [(entry.family, entry.count) for entry in summary.signatures][:2] == [("gemm", 3), ("collective", 1)]


def test_collectives_are_added_up_by_group_and_a_group_without_name_gets_its_number() -> None:
    assert example().collectives == (
        CollectiveCount("dp", 2, "all_reduce", "float32", 2, 150),
        CollectiveCount("group 5", 0, "broadcast", "float32", 1, 7),
    )


def test_a_summary_survives_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(example()), type=Summary) == example()


def test_an_empty_trace_has_an_empty_summary() -> None:
    summary = summarize(TraceBuilder().trace())
    assert (summary.entries, summary.kinds, summary.streams, summary.collectives) == (0, {}, (), ())
