"""Properties of contention: what overlaps slows each other, and nothing else changes."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import jobs, priced, traces
from test_engine import options, same
from timeline_rules import Rules, check_meetings

from presim.cost import overlap
from presim.cost.overlap import Demand
from presim.cost.price import PricedTrace
from presim.engine.simulate import simulate, simulate_job
from presim.engine.simulation_options import Options
from presim.engine.state import SCALE
from presim.engine.timeline import Timeline
from presim.trace.schema import Kind, Trace
from support.long_cases import examples

SETTINGS = settings(deadline=None, max_examples=examples(20))
shares = st.sampled_from([0.0, 0.125, 0.5, 0.75, 1.0])
demands = st.builds(Demand, shares, shares, shares, link_out=shares, port_in=shares)
parts = st.sampled_from([0.0, 0.25, 0.75, 1.0])  # of a shared port


@st.composite
def contended(draw: st.DrawFn, source: st.SearchStrategy[PricedTrace]) -> PricedTrace:
    """Priced work that asks for something, and takes long enough for pieces of it to matter."""
    return _demanding(draw, draw(source))


@st.composite
def contended_jobs(draw: st.DrawFn) -> list[PricedTrace]:
    """Ranks that compete on their GPUs and, two or more of them, for one port or two."""
    job = [_demanding(draw, item) for item in draw(jobs())]
    ports = tuple(draw(st.sampled_from([0, 1])) for _ in job)
    return [dataclasses.replace(_at_ports(draw, item), ports=ports) for item in job]


def _at_ports(draw: st.DrawFn, item: PricedTrace) -> PricedTrace:
    """Every kind of work may use a port: the engine looks at demands alone."""
    asked = (dataclasses.replace(one, shared_out=draw(parts), shared_in=draw(parts)) for one in item.demands)
    return dataclasses.replace(item, demands=tuple(asked))


def _demanding(draw: st.DrawFn, item: PricedTrace) -> PricedTrace:
    prices = tuple(msgspec.structs.replace(price, duration_ns=1_000 * price.duration_ns) for price in item.prices)
    return dataclasses.replace(item, prices=prices, demands=tuple(draw(demands) for _ in item.prices))


@given(contended(priced(traces())), options)
@SETTINGS
def test_streams_waits_and_hosts_keep_their_order(item: PricedTrace, chosen: Options) -> None:
    """Every rule of the simulation without contention, save that work may take longer than alone."""
    Rules(item, simulate(item, options=chosen, compiled=False), chosen).check()


@given(contended(priced(traces())), options)
@SETTINGS
def test_work_is_conserved(item: PricedTrace, chosen: Options) -> None:
    """The parts of each entry's time, each at the pace that its neighbours leave it, add up to its work alone."""
    timeline = simulate(item, options=chosen, compiled=False)
    check_work({0: item}, {0: timeline}, [[(0, at)] for at in running(item.trace)])


@given(contended_jobs(), options)
@SETTINGS
def test_a_collective_goes_at_the_pace_of_its_slowest_member(job: list[PricedTrace], chosen: Options) -> None:
    """Members start and end together, and the work of a meeting is conserved at the slowest member's pace."""
    timelines = simulate_job(job, options=chosen, compiled=False)
    items = {item.trace.manifest.rank: item for item in job}
    meetings = check_meetings(items, timelines, chosen)
    work = [[(rank, at)] for rank, item in items.items() for at in running(item.trace, Kind.WORK)]
    check_work(items, timelines, [*meetings, *work])


@given(contended_jobs(), options)
@SETTINGS
def test_compiled_and_interpreted_give_the_same_bytes(job: list[PricedTrace], chosen: Options) -> None:
    compiled = simulate_job(job, options=chosen, compiled=True)
    interpreted = simulate_job(job, options=chosen, compiled=False)
    assert all(same(compiled[rank], interpreted[rank]) for rank in interpreted)


@given(contended_jobs(), options)
@settings(deadline=None, max_examples=30)
def test_the_order_in_which_ranks_are_handed_in_does_not_matter(job: list[PricedTrace], chosen: Options) -> None:
    forth = simulate_job(job, options=chosen, compiled=False)
    back = simulate_job(job[::-1], options=chosen, compiled=False)
    assert all(same(forth[rank], back[rank]) for rank in forth)


@given(contended(priced(traces())), options)
@SETTINGS
def test_without_overlap_nothing_changes(item: PricedTrace, chosen: Options) -> None:
    """All on one stream: whatever is asked for, nobody else asks."""
    streams = np.zeros_like(item.trace.columns["stream"])
    trace = item.trace
    item = dataclasses.replace(
        item,
        trace=Trace(
            trace.manifest, trace.signatures, trace.scopes, trace.operators, {**trace.columns, "stream": streams}
        ),
    )
    alone = dataclasses.replace(item, demands=())
    assert same(simulate(item, options=chosen, compiled=False), simulate(alone, options=chosen, compiled=False))


@given(contended_jobs(), options)
@settings(deadline=None, max_examples=30)
def test_contention_that_is_not_wanted_changes_nothing(job: list[PricedTrace], chosen: Options) -> None:
    without = simulate_job(job, options=dataclasses.replace(chosen, contention=False), compiled=False)
    alone = simulate_job([dataclasses.replace(item, demands=()) for item in job], options=chosen, compiled=False)
    assert all(same(without[rank], alone[rank]) for rank in alone)


@given(demands, demands, demands)
@SETTINGS
def test_nobody_is_sped_up_and_who_asks_for_more_is_slowed_more(one: Demand, other: Demand, more: Demand) -> None:
    both = Demand(**{name: max(getattr(other, name), getattr(more, name)) for name in Demand.__dataclass_fields__})
    assert 0 <= overlap.added_time(one, other) <= overlap.added_time(one, both)
    assert overlap.added_time(one, overlap.NOTHING) == 0


def running(trace: Trace, *kinds: Kind) -> list[int]:
    """Entries that run on the device."""
    return np.flatnonzero(trace.mask(*(kinds or (Kind.WORK, Kind.COLLECTIVE)))).tolist()


Job = dict[int, tuple[PricedTrace, Timeline]]


def check_work(
    items: dict[int, PricedTrace], timelines: dict[int, Timeline], meetings: list[list[tuple[int, int]]]
) -> None:
    """``meetings``: (rank, entry) of what runs as one."""
    job = {rank: (item, timelines[rank]) for rank, item in items.items()}
    for members in meetings:
        rank, at = members[0]
        begin, end = int(timelines[rank].start_ns[at]), int(timelines[rank].end_ns[at])
        work = end - begin - int(timelines[rank].slowed_ns[at])
        cuts = sorted({begin, end, *_cuts(job, begin, end)})
        done = 0.0
        for left, right in itertools.pairwise(cuts):
            drag = max(max(_drag(*job[rank], at, left), _excess(job, rank, at, left)) for rank, at in members)
            done += (right - left) * SCALE / (SCALE + drag)
        assert work <= done + 1e-6
        assert done <= work + 2 * len(cuts)  # a ns lost for each change of pace, another where its end is rounded


def _cuts(job: Job, begin: int, end: int) -> Iterator[int]:
    """When the pace of an entry may change."""
    for item, timeline in job.values():
        for other in running(item.trace):
            for time in (timeline.start_ns[other], timeline.end_ns[other]):
                if begin < time < end:
                    yield int(time)


def _beside(item: PricedTrace, timeline: Timeline, now: int) -> Iterator[tuple[int, Demand]]:
    """What runs on a rank: the stream and the demand."""
    columns = item.trace.columns
    for other in running(item.trace):
        if timeline.start_ns[other] <= now < timeline.end_ns[other]:
            yield int(columns["stream"][other]), item.demands[int(columns["signature"][other])]


def _drag(item: PricedTrace, timeline: Timeline, at: int, now: int) -> int:
    """What those that run beside an entry add to each ns of its work, in 1/SCALE."""
    stream = int(item.trace.columns["stream"][at])
    mine = item.demands[int(item.trace.columns["signature"][at])]
    return sum(
        round(overlap.added_time(mine, demand) * SCALE)
        for other, demand in _beside(item, timeline, now)
        if other != stream
    )


def _excess(job: Job, rank: int, at: int, now: int) -> int:
    """By how much the port of an entry's rank is asked for more than there is, in 1/SCALE.

    What runs on one stream at once is one launch, whose messages share the port in their prices: its largest counts.
    """
    item = job[rank][0]
    if not item.ports:
        return 0
    mine = item.demands[int(item.trace.columns["signature"][at])]
    found = 0
    for way in ("shared_out", "shared_in"):
        load = 0.0
        for other, (there, timeline) in job.items():
            if there.ports[other] == there.ports[rank] and getattr(mine, way):
                streams: dict[int, float] = {}
                for stream, demand in _beside(there, timeline, now):
                    streams[stream] = max(streams.get(stream, 0.0), getattr(demand, way))
                load += sum(streams.values())
        found = max(found, round((load - 1) * SCALE))
    return found
