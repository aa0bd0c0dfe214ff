"""Properties of transfers that share links: rates are max-min fair at every moment, and all bytes arrive."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import jobs
from test_contention import _demanding, _drag, running
from test_engine import options, same
from timeline_rules import check_meetings

from presim.cost.overlap import Flows, Paths
from presim.cost.price import OnFabric, PricedTrace
from presim.engine.simulate import simulate_job
from presim.engine.simulation_options import Options
from presim.engine.state import SCALE
from presim.engine.timeline import Timeline
from presim.hardware.network.sharing import LinkTraffic, shared_seconds
from presim.trace.signatures import Collective, Signature
from support.long_cases import examples

LINKS = 3
_EXACT = 0.003  # paces are multiples of 1/1024, rounded up
_flows = st.builds(
    lambda bytes_, links, counts: Flows(bytes_, Paths(tuple(sorted(links)), tuple(counts[: len(links)]))),
    st.integers(10_000, 1_000_000),
    st.sets(st.integers(0, LINKS - 1), min_size=1),
    st.lists(st.sampled_from([0.01, 0.02, 0.1, 1.0]), min_size=LINKS, max_size=LINKS),
)


@st.composite
def linked_jobs(draw: st.DrawFn) -> list[PricedTrace]:
    """Ranks with collectives on links, those of one group on the same; all work asks for something of its GPU."""
    known: dict[object, Flows | None] = {}

    def flows_of(item: PricedTrace, signature: Signature) -> Flows | None:
        if not isinstance(signature, Collective):
            return None
        groups = item.trace.manifest.groups
        ranks = groups[signature.group].ranks if 0 <= signature.group < len(groups) else ()
        if ranks not in known:
            known[ranks] = draw(st.none() | _flows)
        return known[ranks]

    job = [_demanding(draw, item) for item in draw(jobs())]
    return [
        dataclasses.replace(item, fabric=OnFabric(tuple(flows_of(item, one) for one in item.trace.signatures), (), ()))
        for item in job
    ]


@given(linked_jobs(), options)
@settings(deadline=None, max_examples=examples(20))
def test_compiled_and_interpreted_give_the_same_bytes(job: list[PricedTrace], chosen: Options) -> None:
    compiled = simulate_job(job, options=chosen, compiled=True)
    interpreted = simulate_job(job, options=chosen, compiled=False)
    assert all(same(compiled[rank], interpreted[rank]) for rank in interpreted)


@given(linked_jobs(), options)
@settings(deadline=None, max_examples=30)
def test_the_order_in_which_ranks_are_handed_in_does_not_matter(job: list[PricedTrace], chosen: Options) -> None:
    forth = simulate_job(job, options=chosen, compiled=False)
    back = simulate_job(job[::-1], options=chosen, compiled=False)
    assert all(same(forth[rank], back[rank]) for rank in forth)


@given(linked_jobs(), options)
@settings(deadline=None, max_examples=examples(20))
def test_at_every_moment_links_are_shared_max_min(job: list[PricedTrace], chosen: Options) -> None:
    """The work of each transfer is done at the rates that `hardware.network.sharing` finds for what runs then."""
    timelines = simulate_job(job, options=chosen, compiled=False)
    items = {item.trace.manifest.rank: item for item in job}
    meetings = check_meetings(items, timelines, chosen)
    ends = [(rank, at) for rank, item in items.items() for at in running(item.trace)]
    cuts = sorted({int(times[at]) for rank, at in ends for times in (timelines[rank].start_ns, timelines[rank].end_ns)})
    done = np.zeros(len(meetings))
    for left, right in itertools.pairwise(cuts):
        there = [
            place
            for place, members in enumerate(meetings)
            if timelines[members[0][0]].start_ns[members[0][1]] <= left < timelines[members[0][0]].end_ns[members[0][1]]
        ]
        paces = _paces([meetings[place] for place in there], items, timelines, left, chosen)
        for place, pace in zip(there, paces, strict=True):
            done[place] += (right - left) / pace
    for place, members in enumerate(meetings):
        work = _alone_ns(members[0], timelines)
        assert abs(done[place] - work) <= _EXACT * work + 2 * len(cuts)


def _alone_ns(member: tuple[int, int], timelines: dict[int, Timeline]) -> int:
    rank, at = member
    timeline = timelines[rank]
    return int(timeline.end_ns[at] - timeline.start_ns[at] - timeline.slowed_ns[at])


def _paces(
    meetings: list[list[tuple[int, int]]],
    items: dict[int, PricedTrace],
    timelines: dict[int, Timeline],
    now: int,
    chosen: Options,
) -> list[float]:
    """How much longer than alone each of these takes that run now."""
    if not chosen.contention:
        return [1.0] * len(meetings)
    loads, slowed = [], []
    for members in meetings:
        drag = max(_drag(items[rank], timelines[rank], at, now) for rank, at in members)
        rank, at = members[0]
        fabric = items[rank].fabric
        assert fabric is not None
        flows = fabric.flows[int(items[rank].trace.columns["signature"][at])]
        alone = max(_alone_ns(members[0], timelines), 1)
        carried = np.zeros(LINKS)
        if flows is not None:
            for link, count in zip(flows.paths.links, flows.paths.flows_per_Bpns):
                carried[link] = min(count * flows.bytes, alone)  # of a link of 1 byte a ns
        slowed.append(1 + drag / SCALE)
        loads.append(LinkTraffic(carried, flows.bytes if flows else 1, alone * slowed[-1]))
    took = shared_seconds(np.ones(LINKS), loads)
    return [slow * took_s / load.alone_s for slow, took_s, load in zip(slowed, took, loads, strict=True)]
