"""Which ranks share a port, and as how many ranks each counts there."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
from numpy.typing import NDArray

from golden.scenarios import OPTIONS
from presim.cost.overlap import Demand
from presim.cost.price import Origin, Price, PricedTrace
from presim.engine.ports import port_columns
from presim.engine.simulate import simulate_job
from presim.engine.state import SCALE
from presim.trace.builder import TraceBuilder
from presim.trace.representatives import Representatives
from presim.trace.schema import Group, Manifest
from presim.trace.signatures import Collective

TWO_NODES = (0,) * 4 + (1,) * 4  # two nodes of four GPUs and one port
GROUPS = (Group("across", (0, 4), 2), Group("pair", (0, 1, 4, 5), 4))


def weights_by_port(columns: dict[str, NDArray[np.int64]]) -> list[dict[int, float]]:
    """By rank: at each port, as how many ranks it counts."""
    first = columns["weight_first"].tolist()
    return [
        {int(columns["weight_port"][at]): columns["weights"][at] / SCALE for at in range(begin, end)}
        for begin, end in itertools.pairwise(first)
    ]


def test_gpus_with_their_own_ports_share_none() -> None:
    columns = port_columns((), [0, 1])
    assert columns["port"].tolist() == [-1, -1]
    assert weights_by_port(columns) == [{}, {}]


def test_simulated_ranks_count_once_each_at_the_port_of_their_node() -> None:
    columns = port_columns(TWO_NODES, range(8))
    assert columns["port"].tolist() == list(TWO_NODES)
    assert weights_by_port(columns) == [{port: 1.0} for port in TWO_NODES]
    assert (columns["port_first"].tolist(), columns["port_next"].tolist()) == ([0, 4], [1, 2, 3, -1, 5, 6, 7, -1])


def test_a_rank_counts_for_the_ranks_it_represents_at_every_simulated_port() -> None:
    """Rank 7 is the only one of its kind: the others of its node do as rank 0 does."""
    columns = port_columns(TWO_NODES, [0, 7], Representatives([0, 7], {0: range(1, 7)}))
    assert weights_by_port(columns) == [{0: 4.0, 1: 3.0}, {1: 1.0}]


def test_ranks_without_a_representative_are_split_among_the_simulated_ones() -> None:
    assert weights_by_port(port_columns(TWO_NODES, [0, 1])) == [{0: 2.0}, {0: 2.0}]
    assert weights_by_port(port_columns(TWO_NODES, [5], Representatives([5], {5: [4]}))) == [{0: 4.0}]


def rank_of(rank: int, *calls: tuple[int, int, float]) -> PricedTrace:
    """One that makes calls of 1,000 ns: group, stream, part of the port."""
    build = TraceBuilder(Manifest(8, rank, "", 4, "", groups=GROUPS))
    for number, (group, stream, _) in enumerate(calls):
        build.work(Collective(kind="all_reduce", bytes=number, dtype="float32", group=group), stream=stream)
    price = Price(1_000, Origin.ANALYTIC, 0.1, "test")
    demands = tuple(Demand(port_out=1.0, shared_out=part) for _, _, part in calls)
    return PricedTrace(build.trace(), (price,) * len(calls), demands=demands, ports=TWO_NODES)


def lasted(job: list[PricedTrace], stands_for: dict[int, list[int]]) -> dict[int, list[int]]:
    representatives = Representatives([item.trace.manifest.rank for item in job], stands_for)
    timelines = simulate_job(job, options=OPTIONS, compiled=False, representatives=representatives)
    return {rank: (timeline.end_ns - timeline.start_ns).tolist() for rank, timeline in timelines.items()}


def test_a_group_alone_has_the_whole_port() -> None:
    idle = rank_of(1)
    assert lasted([rank_of(0, (0, 0, 1.0)), idle], {1: [2, 3, 4, 5, 6, 7]})[0] == [1_000]


def test_two_groups_of_one_rank_on_two_streams_share_it_with_those_of_its_neighbours() -> None:
    """Each of the node's four ranks has two: eight groups."""
    ended = lasted([rank_of(0, (0, 0, 1.0), (0, 1, 1.0))], {0: [1, 2, 3, 4, 5, 6, 7]})
    assert all(7_950 <= lasts <= 8_000 for lasts in ended[0])  # the host issues one shortly before the other


def test_a_group_of_two_ranks_a_node_loads_the_port_as_much_as_a_group_of_one() -> None:
    """Ranks 0 and 1 meet in one group that has half a port for each; rank 2 has a group of its own, rank 3 none."""
    whole = [rank_of(0, (1, 0, 0.5)), rank_of(1, (1, 0, 0.5)), rank_of(2, (0, 0, 1.0)), rank_of(3)]
    assert lasted(whole, {}) == {0: [2_000], 1: [2_000], 2: [2_000], 3: []}


def test_work_that_uses_no_port_is_not_slowed() -> None:
    kernel = rank_of(1, (0, 0, 0.0))
    job = [rank_of(0, (0, 0, 1.0)), dataclasses.replace(kernel, demands=(Demand(arithmetic=1.0),))]
    ended = lasted(job, {0: [2, 3]})
    assert ended == {0: [3_000], 1: [1_000]}
