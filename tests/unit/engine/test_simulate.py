"""The engine's front door."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys

import msgspec
import numpy as np
import pytest

from golden.scenarios import OPTIONS, builder, kernel, priced
from presim.cost.price import Origin, Price, PricedTrace
from presim.engine.calls import CallCosts
from presim.engine.simulate import simulate, simulate_job
from presim.engine.simulation_options import Options
from presim.errors import HangError, InputError
from presim.trace.builder import TraceBuilder
from presim.trace.collective import Collective, Splits
from presim.trace.schema import Group, Phase
from presim.trace.signatures import Gemm


def test_an_empty_trace_takes_no_time() -> None:
    assert simulate(PricedTrace(TraceBuilder().trace(), ())).makespan_ns == 0


def test_entries_that_are_not_ops_get_the_host_time() -> None:
    build = builder()
    build.alloc(512, 512, host_ns=7)
    build.work(kernel(1_000), host_ns=3)
    build.free(512, 512, host_ns=5)
    build.device_sync()
    build.step(host_ns=11)
    timeline = simulate(priced(build), options=OPTIONS)
    assert timeline.issue_ns.tolist() == [7, 20, 25, 25, 1_181]
    assert timeline.end_ns.tolist() == [7, 1_120, 25, 1_170, 1_181]


def test_a_sync_with_nothing_to_wait_for_takes_no_time() -> None:
    build = builder()
    build.device_sync()
    build.stream_sync(stream=3)
    build.event_sync(0)
    assert simulate(priced(build), options=OPTIONS).makespan_ns == 0


def test_waiting_for_past_work_takes_only_the_sync_latency() -> None:
    build = builder()
    build.work(kernel(10))
    build.device_sync(host_ns=10_000)
    assert simulate(priced(build), options=OPTIONS).makespan_ns == 10_010


def test_a_full_queue_blocks_the_host_until_one_of_its_launches_has_ended() -> None:
    build = builder()
    for _ in range(4):
        build.work(kernel(1_000))
    timeline = simulate(priced(build), options=dataclasses.replace(OPTIONS, queue_depth=2))
    assert timeline.issue_ns.tolist() == [10, 20, 1_110, 2_110]


def test_each_stream_has_its_own_queue() -> None:
    build = builder()
    for stream in (0, 0, 1, 1):
        build.work(kernel(1_000), stream=stream)
    timeline = simulate(priced(build), options=dataclasses.replace(OPTIONS, queue_depth=2))
    assert timeline.issue_ns.tolist() == [10, 20, 30, 40]


def test_the_longest_member_decides_how_long_a_collective_takes() -> None:
    job = []
    for rank, size, parts in ((0, 100, Splits(0, (0, 100), (0, 300))), (1, 300, Splits(1, (300, 0), (100, 0)))):
        build = builder(rank, 2)
        build.work(Collective(kind="all_to_all", bytes=size, dtype="uint8", group=0, splits=parts))
        job.append(priced(build))
    timelines = simulate_job(job, options=OPTIONS)
    assert [timelines[rank].end_ns.tolist() for rank in (0, 1)] == [[410], [410]]


def reduce(group: int) -> Collective:
    return Collective(kind="all_reduce", bytes=8, dtype="uint8", group=group)


def crossed_job() -> list[PricedTrace]:
    """Two groups of the same ranks on one stream, called in another order by each rank."""
    job = []
    for rank in (0, 1):
        build = builder(rank, 2)
        groups = (*build.manifest.groups, Group(name="other", ranks=(0, 1), size=2))
        build.manifest = msgspec.structs.replace(build.manifest, groups=groups)
        for group in (rank, 1 - rank):
            build.work(reduce(group))
        build.device_sync()
        job.append(priced(build))
    return job


@pytest.mark.parametrize("compiled", [True, False])
def test_ranks_that_wait_for_each_other_are_a_hang_that_names_them(compiled: bool) -> None:
    expected = (
        "the job would hang: these calls wait for each other in a cycle: "
        "rank 0, entry 0: all_reduce of 8 bytes (uint8) on 'world' (ranks 0, 1); "
        "rank 1, entry 0: all_reduce of 8 bytes (uint8) on 'other' (ranks 0, 1). "
        "Compare what these ranks call before; no rank's order may differ"
    )
    with pytest.raises(HangError, match=f"^{re.escape(expected)}$"):
        simulate_job(crossed_job(), options=OPTIONS, compiled=compiled)


def test_a_member_that_never_arrives_is_a_hang() -> None:
    first, second = builder(0, 2), builder(1, 2)
    first.work(reduce(0), scope="head", phase=Phase.BACKWARD)
    second.work(kernel(1))
    expected = (
        "the job would hang: rank 0, entry 0 in head (backward): all_reduce of 8 bytes (uint8) on 'world' (ranks 0, 1) "
        "waits for rank 1, which never calls anything on it. "
        "Compare what these ranks call before; no rank's order may differ"
    )
    with pytest.raises(HangError, match=f"^{re.escape(expected)}$"):
        simulate_job([priced(first), priced(second)])


def test_a_member_that_stops_calling_is_named_with_its_last_call() -> None:
    first, second = builder(0, 2), builder(1, 2)
    for build, calls in ((first, 3), (second, 2)):
        for _ in range(calls):
            build.work(reduce(0))
    with pytest.raises(HangError, match="rank 1, which makes 2 calls on it and not this one; its last is rank 1"):
        simulate_job([priced(first), priced(second)])


def test_a_group_that_one_rank_leaves_out_is_not_taken_for_another_of_the_same_ranks() -> None:
    first, second = builder(0, 2), builder(1, 2)
    groups = (Group(name="other", ranks=(0, 1), size=2), *first.manifest.groups)
    first.manifest = msgspec.structs.replace(first.manifest, groups=groups)
    for build, calls in ((first, (0, 1)), (second, (0,))):
        for group in calls:
            build.work(reduce(group))
    expected = "on 'other' (ranks 0, 1) waits for rank 1, which never calls anything on it. "
    with pytest.raises(HangError, match=re.escape(expected)):
        simulate_job([priced(first), priced(second)])


def test_two_traces_of_one_rank_are_refused() -> None:
    with pytest.raises(InputError, match=r"^a job must have one trace per rank, but its traces are of ranks \[0, 0\]"):
        simulate_job([priced(builder()), priced(builder())])


def test_impossible_options_are_refused() -> None:
    with pytest.raises(ValueError, match="host times must not be negative and a queue must hold at least 1 launch"):
        Options(queue_depth=0)
    with pytest.raises(ValueError, match="host times must not be negative"):
        Options(launch_latency_ns=-1)
    with pytest.raises(ValueError, match="host times must not be negative"):
        Options(host_factor=float("nan"))


def test_a_small_simulation_does_not_load_numba() -> None:
    script = (
        "import sys; from golden.scenarios import launch_bound; from presim.engine.simulate import simulate_job\n"
        "simulate_job(launch_bound()); print([name for name in ('numba', 'torch', 'pyarrow') if name in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "[]\n"


def test_a_large_time_is_not_lost_in_a_float() -> None:
    build = builder()
    build.work(kernel(2**60 + 1))
    timeline = simulate(priced(build), options=OPTIONS, compiled=True)
    assert timeline.end_ns.tolist() == [110 + 2**60 + 1]
    assert timeline.end_ns.dtype == np.int64


def test_a_replayed_graph_is_launched_once() -> None:
    """Work that a CUDA graph replays needs no launch call of its own: ten kernels cost the host one launch."""
    build = TraceBuilder()
    signature = Gemm(m=64, n=64, k=64, batch=1, dtype="bfloat16")
    for index in range(10):
        build.work(signature, replayed=index > 0)
    trace = build.trace()
    price = Price(100, Origin.ANALYTIC, 0.1, "fixed")
    timeline = simulate(PricedTrace(trace, (price,)), options=Options(calls=CallCosts(product=2_000)))
    assert timeline.issue_ns.tolist() == [2_000] * 10
