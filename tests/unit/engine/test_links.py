"""Transfers that share links of a fabric: cases that can be worked out by hand."""

from __future__ import annotations

import dataclasses

import pytest

from presim.cost.overlap import Demand, Flows, Paths
from presim.cost.price import OnFabric, Origin, Price, PricedTrace
from presim.engine.calls import NO_CALLS
from presim.engine.flow_classes import FlowClasses
from presim.engine.simulate import simulate_job
from presim.engine.simulation_options import Options
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Group, Manifest
from presim.trace.signatures import Collective, Copy

OPTIONS = Options(host_factor=1.0, calls=NO_CALLS, launch_latency_ns=0, sync_latency_ns=0)
MS = 1_000_000
LINK = Paths((7,), (1 / 50,))  # one flow over 50 bytes a ns
SAME_LINK = Paths((7,), (1 / 50,))
OTHER_LINK = Paths((8,), (1 / 50,))


@dataclasses.dataclass(frozen=True)
class Transfer:
    """A collective of one rank with the time it takes alone; it is on links if it has flows."""

    flows: Flows | None
    alone_ns: int = MS
    after_ns: int = 0  # host time before it


def _trace_of(rank: int, host_ns: int = 0) -> TraceBuilder:
    group = Group("pair", (rank, rank + 8), 2)
    build = TraceBuilder(Manifest(world_size=16, rank=rank, gpu="", gpus_per_node=8, script="", groups=(group,)))
    build.work(Collective("all_reduce", 1 + rank, "bfloat16", 0), stream=0, host_ns=host_ns)
    return build


def ends(*transfers: Transfer, contention: bool = True) -> list[int]:
    """When each ends, in ns; each is of another rank."""
    job = []
    for rank, one in enumerate(transfers):
        build = _trace_of(rank, one.after_ns)
        price = Price(one.alone_ns, Origin.ANALYTIC, 0.1, "test")
        job.append(PricedTrace(build.trace(), (price,), fabric=OnFabric((one.flows,), (), ())))
    options = dataclasses.replace(OPTIONS, contention=contention)
    found = [simulate_job(job, options=options, compiled=compiled) for compiled in (False, True)]
    each = [[int(one[rank].end_ns[0]) for rank in range(len(job))] for one in found]
    assert each[0] == each[1], "compiled and interpreted agree"
    lost = [int(found[0][rank].ports_ns[0]) for rank in range(len(job))]
    assert all(end - one.after_ns - one.alone_ns == shared for end, one, shared in zip(each[0], transfers, lost))
    return each[0]


def test_alone_it_takes_its_price_whatever_the_link_carries() -> None:
    assert ends(Transfer(Flows(50 * MS, LINK))) == [MS]
    assert ends(Transfer(Flows(500 * MS, LINK))) == [MS]


def test_two_that_fill_a_link_take_twice_as_long() -> None:
    one, other = Flows(50 * MS, LINK), Flows(50 * MS, SAME_LINK)
    assert ends(Transfer(one), Transfer(other)) == [2 * MS, 2 * MS]
    assert ends(Transfer(one), Transfer(one)) == [2 * MS, 2 * MS]
    assert ends(Transfer(one), Transfer(other), contention=False) == [MS, MS]


def test_half_overlapped_each_takes_half_as_long_again() -> None:
    """Alone for 0.5 ms, together for 1 ms, then the other alone for 0.5 ms."""
    flows = Flows(50 * MS, LINK)
    assert ends(Transfer(flows), Transfer(flows, after_ns=MS // 2)) == [3 * MS // 2, 2 * MS]


def test_on_different_links_nothing_changes() -> None:
    assert ends(Transfer(Flows(50 * MS, LINK)), Transfer(Flows(50 * MS, OTHER_LINK))) == [MS, MS]
    assert ends(Transfer(Flows(50 * MS, LINK)), Transfer(None)) == [MS, MS]


def test_links_that_are_not_full_slow_nobody() -> None:
    flows = Flows(25 * MS, LINK)
    assert ends(Transfer(flows), Transfer(flows)) == [MS, MS]


def test_one_that_is_limited_elsewhere_leaves_the_rest() -> None:
    """It takes 10 of 50 bytes a ns; the other wants 50 and gets 40 for 1 ms, then it is alone with 10 MB."""
    slow, fast = Flows(10 * MS, LINK), Flows(50 * MS, LINK)
    first, second = ends(Transfer(slow), Transfer(fast))
    assert first == MS
    assert second == pytest.approx(1.2 * MS, rel=1e-3)


def test_rates_are_those_of_flows() -> None:
    """Three flows of one transfer and one of another: all flows get a quarter of the link."""
    three, one = Flows(50 * MS // 3, Paths((7,), (3 / 50,))), Flows(50 * MS, LINK)
    first, second = ends(Transfer(three), Transfer(one))
    assert first == pytest.approx(4 / 3 * MS, rel=2e-3)
    assert second == pytest.approx(2 * MS, rel=2e-3)


def test_a_link_that_two_fill_leaves_a_third_more_of_another() -> None:
    """A crosses links 1 (with B) and 2 (with C); link 1 has half, so A and B get 25 each and C the other 75 of 100."""
    a = Flows(50 * MS, Paths((1, 2), (1 / 50, 1 / 100)))
    b, c = Flows(50 * MS, Paths((1,), (1 / 50,))), Flows(100 * MS, Paths((2,), (1 / 100,)))
    first, second, third = ends(Transfer(a), Transfer(b), Transfer(c))
    assert (first, second) == (2 * MS, 2 * MS)
    assert third == pytest.approx(4 / 3 * MS, rel=2e-3)


def test_what_is_slowed_on_its_gpu_leaves_the_link_to_others() -> None:
    """A copy beside the first halves its pace, so it takes 20 of 50 bytes a ns; the second takes the 30 it wants."""
    busy, nothing = Demand(memory=1.0), Demand()
    job = []
    for rank, (bytes_, copies) in enumerate(((40 * MS, True), (30 * MS, False))):
        build = _trace_of(rank)
        if copies:
            build.work(Copy(direction="h2d", bytes=1), stream=1)
        count = 1 + copies
        fabric = OnFabric((Flows(bytes_, LINK), None)[:count], (), ())
        prices = (Price(MS, Origin.ANALYTIC, 0.1, "test"),) * count
        job.append(PricedTrace(build.trace(), prices, demands=(busy if copies else nothing,) * count, fabric=fabric))
    timelines = simulate_job(job, options=OPTIONS, compiled=False)
    assert timelines[0].end_ns.tolist() == [2 * MS, 2 * MS]
    assert timelines[1].end_ns.tolist() == [MS]
    assert timelines[0].ports_ns.tolist() == [0, 0]


@pytest.mark.parametrize(("stretch", "end"), [(1.0, 4.0), (1.5, 8 / 3), (4.0, 2.0)])
def test_waits_for_a_crowded_link_and_for_the_gpu_are_not_added(stretch: float, end: float) -> None:
    """A copy halves the pace. Of 2 ms, a link explains none, 0.67 ms (1.33 become 2.67) or 1.5 ms (0.5 become 1)."""
    build = _trace_of(0)
    build.work(Copy(direction="h2d", bytes=1), stream=1)
    prices = tuple(Price(duration_ns, Origin.ANALYTIC, 0.1, "test") for duration_ns in (2 * MS, 9 * MS))
    fabric = OnFabric((Flows(100 * MS, LINK, stretch), None), (), ())
    timeline = simulate_job(
        [PricedTrace(build.trace(), prices, demands=(Demand(memory=1.0),) * 2, fabric=fabric)],
        options=OPTIONS,
        compiled=False,
    )[0]
    assert timeline.end_ns.tolist()[0] == pytest.approx(end * MS, rel=2e-3)


def test_links_that_all_use_alike_are_one_and_others_are_islands() -> None:
    classes = FlowClasses()
    a, b = Paths((1, 2, 3), (0.5, 0.5, 0.25)), Paths((9,), (1.0,))
    items = PricedTrace(TraceBuilder().trace(), (), fabric=OnFabric((Flows(1, a), Flows(2, a), Flows(1, b)), (), ()))
    assert classes.of(items).tolist() == [1, 2, 3, 0]
    columns = classes.columns(enabled=True)
    assert columns["island_first"].tolist() == [0, 2, 3]
    assert columns["flows_island"].tolist() == [-1, 0, 0, 1]
    assert columns["flows_link"].tolist() == [0, 1, 2]
    assert classes.columns(enabled=True, growing=True)["island_first"].tolist() == [0, 4]
