"""Properties of shared ports: groups on one port share its bandwidth, whether they are simulated or stood for."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from presim.cost.overlap import Demand
from presim.cost.price import Origin, Price, PricedTrace
from presim.engine.calls import NO_CALLS
from presim.engine.simulate import simulate_job
from presim.engine.simulation_options import Options
from presim.trace.builder import TraceBuilder
from presim.trace.representatives import Representatives
from presim.trace.schema import Group, Manifest
from presim.trace.signatures import Collective
from support.long_cases import examples

SETTINGS = settings(deadline=None, max_examples=examples(33))
OPTIONS = Options(host_factor=1.0, calls=NO_CALLS, launch_latency_ns=0, sync_latency_ns=0)
counts = st.integers(1, 8)
times_ns = st.integers(1, 10_000_000)


def crossing(rank: int, gpus: int, lasts_ns: int, part: float = 1.0, after_ns: int = 0) -> PricedTrace:
    """A rank that meets its counterpart on the other node, over the one port of its own."""
    pair = Group("pair", (rank, rank + gpus), 2)
    build = TraceBuilder(Manifest(2 * gpus, rank, "", gpus, "", groups=(pair,)))
    build.work(Collective(kind="all_reduce", bytes=1, dtype="float32", group=0), host_ns=after_ns)
    price = Price(lasts_ns, Origin.ANALYTIC, 0.1, "test")
    demand = Demand(port_out=1.0, port_in=1.0, shared_out=part, shared_in=part)
    return PricedTrace(build.trace(), (price,), demands=(demand,), ports=(0,) * gpus + (1,) * gpus)


@given(counts, times_ns, st.sampled_from([1 / 8, 0.25, 0.5, 1.0]))
@SETTINGS
def test_equal_groups_take_as_long_as_all_their_bytes(count: int, lasts_ns: int, part: float) -> None:
    """Where the port has room for all, nobody waits; else each takes what all would take one after the other."""
    job = [crossing(rank, count, lasts_ns, part) for rank in range(count)]
    for timeline in simulate_job(job, options=OPTIONS, compiled=False).values():
        assert timeline.makespan_ns == max(lasts_ns, math.ceil(count * part * lasts_ns))
        assert timeline.ports_ns.tolist() == timeline.slowed_ns.tolist()


@given(counts, times_ns, st.sampled_from([0.25, 1.0]), st.booleans())
@SETTINGS
def test_a_rank_that_stands_for_others_counts_as_all_of_them(
    count: int, lasts_ns: int, part: float, said: bool
) -> None:
    """As if they were simulated; ranks of the port that nobody stands for are taken to do the same."""
    job = [crossing(rank, count, lasts_ns, part) for rank in range(count)]
    voices = Representatives([0], {0: range(1, 2 * count)}) if said else Representatives([0])
    (one,) = simulate_job(job[:1], options=OPTIONS, compiled=False, representatives=voices).values()
    assert one.makespan_ns == simulate_job(job, options=OPTIONS, compiled=False)[0].makespan_ns


@given(st.lists(st.tuples(times_ns, times_ns), min_size=1, max_size=8))
@SETTINGS
def test_bytes_are_conserved_whenever_groups_begin(calls: list[tuple[int, int]]) -> None:
    """The port is busy for exactly as long as its bytes take, and idle only while nobody has any left."""
    gpus = len(calls)
    job = [crossing(rank, gpus, lasts, after_ns=after) for rank, (lasts, after) in enumerate(calls)]
    timelines = simulate_job(job, options=OPTIONS, compiled=False)
    free_ns = 0
    for lasts, after in sorted(calls, key=lambda call: call[1]):
        free_ns = max(free_ns, after) + lasts
    last_ns = max(timeline.makespan_ns for timeline in timelines.values())
    assert free_ns <= last_ns <= free_ns + 2 * gpus * gpus  # a ns lost or two for each change of each one's pace
    assert all(timeline.slowed_ns.min() >= 0 for timeline in timelines.values())


@given(st.lists(st.tuples(times_ns, times_ns), min_size=2, max_size=5), st.randoms(use_true_random=False))
@SETTINGS
def test_neither_order_nor_compiler_changes_anything(calls: list[tuple[int, int]], random: object) -> None:
    gpus = len(calls)
    job = [crossing(rank, gpus, lasts, after_ns=after) for rank, (lasts, after) in enumerate(calls)]
    shuffled = sorted(job, key=lambda item: random.random())  # type: ignore[attr-defined]
    straight = simulate_job(job, options=OPTIONS, compiled=False)
    other = simulate_job(shuffled, options=OPTIONS, compiled=True)
    assert all(straight[rank].end_ns.tolist() == other[rank].end_ns.tolist() for rank in straight)
