"""The chain that makes a step as long as it is covers the step exactly, whatever the job."""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import jobs
from test_engine import options

from presim.analysis.time.critical_path import critical_path
from presim.analysis.time.steps import find_steps
from presim.cost.price import Origin, Price, PricedTrace
from presim.engine.calls import NO_CALLS
from presim.engine.simulate import simulate_job
from presim.engine.simulation_options import Options
from presim.trace.builder import TraceBuilder, default_manifest
from presim.trace.schema import Group
from presim.trace.signatures import Collective, Gemm
from support.long_cases import examples

SETTINGS = settings(deadline=None, max_examples=examples(50))


@given(jobs(), options)
@SETTINGS
def test_pieces_touch_and_cover_the_step(job: list[PricedTrace], chosen: Options) -> None:
    traces = [item.trace for item in job]
    timelines = simulate_job(job, options=chosen, compiled=False)
    path = critical_path(traces, timelines, launch_latency_ns=chosen.launch_latency_ns)
    steps = [find_steps(trace, timelines[trace.manifest.rank]).steady for trace in traces]
    last = max(steps, key=lambda step: step.end_ns)
    assert last.end_ns == max(step.end_ns for step in steps)
    for parts in (path.by_kind, path.by_name, path.by_module, path.by_rank):
        assert sum(part.seconds for part in parts) == pytest.approx(path.length_s, abs=1e-12)
    for before, after in itertools.pairwise(path.longest):
        assert before.end_s <= after.start_s + 1e-12


@given(st.lists(st.integers(1, 50), min_size=1, max_size=12))
@SETTINGS
def test_kernels_of_one_stream_are_all_on_the_path(durations: list[int]) -> None:
    """With a host that takes no time."""
    builder = TraceBuilder()
    for number, _ in enumerate(durations):
        builder.work(Gemm(16 * (number + 1), 16, 16, 1, "bfloat16"), stream=0)
    trace = builder.trace()
    prices = tuple(_price(ns) for ns in durations)
    priced = PricedTrace(trace, prices)
    free = Options(host_factor=0.0, calls=NO_CALLS, launch_latency_ns=0)
    timelines = simulate_job([priced], options=free, compiled=False)
    path = critical_path([trace], timelines, launch_latency_ns=0)
    assert [part.name for part in path.by_kind] == ["compute"]
    assert path.length_s == pytest.approx(sum(durations) / 1e9)


def test_the_chain_goes_on_at_the_rank_that_came_last() -> None:
    """Two ranks meet; one of them computes longer before."""
    traces = []
    for rank, ns in ((0, 10), (1, 500)):
        groups = (Group("all", (0, 1), 2),)
        builder = TraceBuilder(msgspec.structs.replace(default_manifest(), rank=rank, world_size=2, groups=groups))
        builder.work(Gemm(ns, 16, 16, 1, "bfloat16"), stream=0)
        builder.work(Collective("all_reduce", 1024, "bfloat16", 0), stream=0)
        traces.append(builder.trace())
    priced = [
        PricedTrace(trace, tuple(_price(20 if isinstance(one, Collective) else one.m) for one in trace.signatures))
        for trace in traces
    ]
    free = Options(host_factor=0.0, calls=NO_CALLS, launch_latency_ns=0)
    timelines = simulate_job(priced, options=free, compiled=False)
    assert np.all(timelines[0].end_ns <= 520)
    path = critical_path(traces, timelines, launch_latency_ns=0)
    assert {part.name: round(part.seconds * 1e9) for part in path.by_rank} == {"rank 1": 500, "rank 0": 20}
    assert path.changes_of_rank == 1


def _price(ns: int) -> Price:
    return Price(duration_ns=ns, origin=Origin.ANALYTIC, uncertainty=0.1, estimator="test")
