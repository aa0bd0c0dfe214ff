"""Properties of the simulation."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from strategies import jobs, priced, traces
from timeline_rules import Rules, busy_ns, check_meetings

from presim.cost.price import Origin, Price, PricedTrace
from presim.engine.calls import CallCosts
from presim.engine.simulate import simulate, simulate_job
from presim.engine.simulation_options import Options
from presim.engine.timeline import Timeline
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Kind, Trace
from presim.trace.signatures import Copy, Gemm
from support.long_cases import examples

small = st.integers(0, 9)
options = st.builds(
    Options,
    host_factor=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
    calls=st.builds(CallCosts, *[small] * 5),
    launch_latency_ns=small,
    sync_latency_ns=small,
    queue_depth=st.sampled_from([1, 2, 3, 1024]),
)
SETTINGS = settings(deadline=None, max_examples=examples(25))


def same(left: Timeline, right: Timeline) -> bool:
    return all(
        getattr(left, field.name).tobytes() == getattr(right, field.name).tobytes()
        for field in dataclasses.fields(Timeline)
    )


@given(priced(traces()), options)
@SETTINGS
def test_every_entry_starts_when_it_can_and_not_before(item: PricedTrace, chosen: Options) -> None:
    """Order of streams, waits, host blocking, exclusive resources and priorities, each checked by itself."""
    Rules(item, simulate(item, options=chosen, compiled=False), chosen).check()


@given(jobs(), options)
@SETTINGS
def test_collectives_start_together_on_all_members(job: list[PricedTrace], chosen: Options) -> None:
    """Two to four ranks, with collectives of all and of some, sends and receives, alone and in one launch."""
    timelines = simulate_job(job, options=chosen, compiled=False)
    check_meetings({item.trace.manifest.rank: item for item in job}, timelines, chosen)


@given(jobs(), options)
@SETTINGS
def test_compiled_and_interpreted_give_the_same_bytes(job: list[PricedTrace], chosen: Options) -> None:
    """One source, two ways to run it."""
    compiled = simulate_job(job, options=chosen, compiled=True)
    interpreted = simulate_job(job, options=chosen, compiled=False)
    assert all(same(compiled[rank], interpreted[rank]) for rank in interpreted)


@given(jobs(), options)
@settings(deadline=None, max_examples=30)
def test_the_order_in_which_ranks_are_handed_in_does_not_matter(job: list[PricedTrace], chosen: Options) -> None:
    """Ranks are told apart by their number alone."""
    forth = simulate_job(job, options=chosen, compiled=False)
    back = simulate_job(job[::-1], options=chosen, compiled=False)
    assert all(same(forth[rank], back[rank]) for rank in forth)


@given(priced(traces()), options)
@SETTINGS
def test_makespan_lies_between_the_busiest_part_and_everything_in_a_row(item: PricedTrace, chosen: Options) -> None:
    """A device cannot be faster than its busiest stream, nor slower than doing all one by one."""
    timeline = simulate(item, options=chosen, compiled=False)
    rules = Rules(item, timeline, chosen)
    host = sum(rules.host_ns(at) for at in rules.entries)
    latencies = len(item.trace) * (chosen.launch_latency_ns + chosen.sync_latency_ns)
    assert timeline.makespan_ns >= max([host, *busy_ns(item).values()])
    assert timeline.makespan_ns <= host + sum(busy_ns(item).values()) + latencies


@given(priced(traces()), options, st.data())
@SETTINGS
def test_a_wait_makes_nothing_earlier_on_a_device_where_streams_do_not_compete(
    item: PricedTrace, chosen: Options, data: st.DataObject
) -> None:
    """Holds with one stream for each resource.

    Where streams compete it does not: to hold one of them back can let a short entry of another go first, as in
    Graham's anomalies of list scheduling (1969).
    """
    item = _one_stream_for_each_resource(item)
    kinds = item.trace.columns["kind"]
    waits = np.flatnonzero((kinds == Kind.STREAM_WAIT) | np.isin(kinds, [Kind.EVENT_SYNC, Kind.DEVICE_SYNC]))
    if not len(waits):
        return
    without = _without_wait(item, int(data.draw(st.sampled_from(waits.tolist()))))
    earlier, later = simulate(without, options=chosen, compiled=False), simulate(item, options=chosen, compiled=False)
    assert np.all(later.issue_ns >= earlier.issue_ns)
    assert np.all(later.start_ns >= earlier.start_ns)


def _one_stream_for_each_resource(item: PricedTrace) -> PricedTrace:
    """Compute on stream 0, h2d on 1, d2h on 2; collectives and events stay where they are."""
    directions = [getattr(signature, "direction", "") for signature in item.trace.signatures]
    stream = item.trace.columns["stream"].copy()
    for at in np.flatnonzero(item.trace.mask(Kind.WORK)):
        direction = directions[int(item.trace.columns["signature"][at])]
        stream[at] = {"h2d": 1, "d2h": 2}.get(direction, 0)
    return _with(item, stream=stream)


def _without_wait(item: PricedTrace, at: int) -> PricedTrace:
    """The wait is for a recording that never was, so it takes its host time and nothing else."""
    kind, object_ = item.trace.columns["kind"].copy(), item.trace.columns["object"].copy()
    if kind[at] == Kind.DEVICE_SYNC:
        kind[at] = Kind.EVENT_SYNC
    object_[at] = 0
    return _with(item, kind=kind, object=object_)


def _with(item: PricedTrace, **columns: NDArray[np.generic]) -> PricedTrace:
    trace = item.trace
    changed = Trace(trace.manifest, trace.signatures, trace.scopes, trace.operators, {**trace.columns, **columns})
    return PricedTrace(changed, item.prices)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=20), st.integers(0, 9))
@settings(deadline=None, max_examples=50)
def test_a_launch_bound_program_takes_its_hosts_time(host: list[int], latency: int) -> None:
    """Where every kernel is shorter than the time to launch the next, only the last one shows."""
    build = TraceBuilder()
    for spent in host:
        build.work(Copy(direction="memset", bytes=1), host_ns=spent)
    chosen = Options(calls=CallCosts(launch=3), launch_latency_ns=latency)
    item = _at_duration(build.trace(), 2)
    assert simulate(item, options=chosen).makespan_ns == sum(host) + 3 * len(host) + latency + 2


def _at_duration(trace: Trace, duration_ns: int) -> PricedTrace:
    price = Price(duration_ns=duration_ns, origin=Origin.ANALYTIC, uncertainty=0.0, estimator="test")
    return PricedTrace(trace, (price,) * len(trace.signatures))


SCRIPT = """
import hashlib, sys
from test_engine import determined
print(hashlib.sha256(b"".join(determined(sys.argv[1] == "compiled"))).hexdigest())
"""


def determined(compiled: bool) -> list[bytes]:
    """The bytes of one simulation with something of everything."""
    build = TraceBuilder()
    for index in range(200):
        build.work(Gemm(m=index % 7, n=1, k=1, batch=1, dtype="float32"), stream=index % 3, host_ns=index % 5)
        build.wait(build.record(stream=index % 3), stream=(index + 1) % 3)
        if index % 50 == 49:
            build.device_sync()
    timeline = simulate(_at_duration(build.trace(), 1_000), compiled=compiled)
    return [getattr(timeline, field.name).tobytes() for field in dataclasses.fields(Timeline)]


@pytest.mark.parametrize("way", ["compiled", "interpreted"])
def test_two_processes_give_the_same_bytes(way: str) -> None:
    """Nothing depends on the process: no hash order, no address, no clock."""
    runs = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT, way],
            env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed, "HOME": "/tmp"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1
    assert determined(True) == determined(False)
