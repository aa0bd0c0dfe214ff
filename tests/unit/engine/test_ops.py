"""From trace entries to ops."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from golden.scenarios import builder, kernel, priced
from presim.cost.price import PricedTrace
from presim.engine import loop
from presim.engine.calls import NO_CALLS, CallCosts
from presim.engine.ops import build_ops
from presim.engine.simulation_options import Options
from presim.errors import InputError
from presim.hardware.host import ORDINARY, REFERENCE_PROBE_NS, TYPICAL_FACTOR
from presim.trace.builder import TraceBuilder, default_manifest
from presim.trace.signatures import Collective, Copy

FREE = Options(calls=NO_CALLS)


def test_host_time_of_entries_that_are_no_ops_goes_to_the_next_op() -> None:
    build = TraceBuilder()
    build.alloc(512, 512, host_ns=3)
    build.work(Copy(direction="memset", bytes=1), host_ns=5)
    build.free(512, 512, host_ns=7)
    build.step(host_ns=11)
    build.device_sync(host_ns=13)
    ops = build_ops(priced(build), FREE)
    assert ops.entries.tolist() == [1, 4]
    assert ops.host_ns.tolist() == [8, 31]


def test_host_time_is_scaled_and_rounded_entry_by_entry_before_the_overheads_are_added() -> None:
    build = TraceBuilder()
    build.work(Copy(direction="memset", bytes=1), host_ns=3)
    build.record(stream=0, host_ns=5)
    options = Options(host_factor=1.5, calls=CallCosts(launch=100, event=10))
    assert build_ops(priced(build), options).host_ns.tolist() == [104, 18]


@pytest.mark.parametrize(
    ("known", "factor"),
    [
        ({"reference_host": True}, TYPICAL_FACTOR),
        ({"host_probe_ns": REFERENCE_PROBE_NS // 2}, 2 * TYPICAL_FACTOR / ORDINARY),
        ({}, 1.0),
    ],
)
def test_without_a_factor_host_time_is_a_typical_server_s(known: dict[str, int], factor: float) -> None:
    """As far as the trace says whose it was: the reference host's, or that of a machine twice as fast."""
    manifest = msgspec.structs.replace(default_manifest(), **known)
    build = TraceBuilder(manifest)
    build.work(Copy(direction="memset", bytes=1), host_ns=30_000)
    ops = build_ops(priced(build), FREE)
    assert ops.host_ns.tolist() == pytest.approx([30_000 * factor], rel=1e-3)
    assert build_ops(priced(build), Options(calls=NO_CALLS, host_factor=1.0)).host_ns.tolist() == [30_000]


def test_ops_of_one_stream_are_linked_in_order() -> None:
    build = TraceBuilder()
    for stream in (4, 0, 4, 0, 4):
        build.work(kernel(1), stream=stream)
    ops = build_ops(priced(build), FREE)
    assert ops.streams.tolist() == [0, 4]
    assert ops.slot_first.tolist() == [1, 0]
    assert ops.following.tolist() == [2, 3, 4, -1, -1]


def test_a_wait_is_for_the_last_recording_of_its_serial_before_it() -> None:
    build = TraceBuilder()
    build.wait(7, stream=0)  # never recorded
    first = build.record(stream=0)
    build.wait(first, stream=1)
    build.wait(first + 1, stream=1)  # recorded, but later
    build.event_sync(build.record(stream=1))
    build.wait(0, stream=2)
    ops = build_ops(priced(build), FREE)
    assert ops.target.tolist() == [-1, -1, 1, -1, -1, 4, -1]


def test_a_serial_that_is_recorded_again_means_its_latest_recording() -> None:
    build = TraceBuilder()
    serials = [build.record(stream=0), build.record(stream=0)]
    build.wait(serials[0], stream=1)
    item = priced(build)
    item.trace.columns["object"][1] = serials[0]
    assert build_ops(item, FREE).target.tolist() == [-1, -1, 1]


def test_copies_have_an_engine_for_each_direction_and_the_rest_computes() -> None:
    build = TraceBuilder()
    for direction in ("h2d", "d2h", "peer", "d2d", "memset"):
        build.work(Copy(direction=direction, bytes=1))  # type: ignore[arg-type]  # a literal of a loop
    expected = [loop.COPY_H2D, loop.COPY_D2H, loop.COPY_PEER, loop.COMPUTE, loop.COMPUTE]
    assert build_ops(priced(build), FREE).resource.tolist() == expected


def message(kind: str, size: int, peer: int = 1) -> Collective:
    return Collective(kind=kind, bytes=size, dtype="uint8", group=0, peer=peer)


def test_sends_and_receives_of_one_launch_join_and_share_the_bandwidth_of_their_direction() -> None:
    build = builder(0, 4)
    for kind, size in (("send", 10), ("send", 20), ("recv", 5), ("recv", 7)):
        build.work(message(kind, size), stream=1, launch_group=3)
    build.work(message("send", 10), stream=1, launch_group=4)
    ops = build_ops(priced(build), FREE)
    assert ops.joins.tolist() == [0, 1, 1, 1, 0]
    assert ops.duration.tolist() == [10, 30, 5, 12, 10]


def test_other_collectives_of_one_launch_follow_each_other() -> None:
    build = builder(0, 4)
    for _ in range(2):
        build.work(Collective(kind="all_reduce", bytes=9, dtype="uint8", group=0), launch_group=3)
    ops = build_ops(priced(build), FREE)
    assert ops.joins.tolist() == [0, 0]
    assert ops.duration.tolist() == [9, 9]


def test_priorities_come_from_the_manifest_and_default_to_0() -> None:
    build = builder(priorities={3: -2})
    build.work(kernel(1), stream=3)
    build.work(kernel(1), stream=1)
    assert build_ops(priced(build), FREE).priority.tolist() == [0, -2]


def test_a_negative_duration_is_refused() -> None:
    build = TraceBuilder()
    build.work(kernel(-5))
    with pytest.raises(InputError, match=r"^an entry has a negative duration \(-5 ns\); correct its price$"):
        build_ops(priced(build), FREE)


def test_an_empty_trace_has_no_ops() -> None:
    ops = build_ops(PricedTrace(TraceBuilder().trace(), ()), FREE)
    assert len(ops.entries) == len(ops.streams) == 0
    assert np.array_equal(ops.host_cum_ns, [])


def test_gpus_of_one_process_work_at_once() -> None:
    """Work of the second GPU is no work of the first, which runs one kernel at a time."""
    build = TraceBuilder(msgspec.structs.replace(default_manifest(), devices=2, stream_devices={1: 1}))
    for stream in (0, 1):
        build.work(Copy(direction="memset", bytes=1), stream=stream)
    ops = build_ops(priced(build), FREE)
    assert ops.code.tolist() == [loop.RUN, loop.MEET]
