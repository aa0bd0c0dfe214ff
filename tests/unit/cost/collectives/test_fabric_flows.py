"""Different collectives at the same time on the links of a described fabric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from presim.cost.chain import price_trace
from presim.cost.collectives.fabric_flows import on_fabric
from presim.cost.collectives.running import concurrent_groups
from presim.engine.simulation_options import Options
from presim.evaluation.evaluate_traces import Evaluation, evaluate
from presim.evaluation.what_if import Changes
from presim.hardware import Cluster, choose_cluster
from presim.hardware.network.build_topology import topology_of
from presim.hardware.network.sharing import congestible_links
from presim.trace.builder import TraceBuilder
from presim.trace.job import Job
from presim.trace.representatives import Representatives
from presim.trace.schema import Group, Manifest, Phase, Trace
from presim.trace.signatures import Collective

WORLD = 64
BYTES = 1 << 28
NARROW = {"leaf_nodes": 1, "oversubscription": 8.0}


def cluster(**network: Any) -> Cluster:
    return msgspec.structs.replace(choose_cluster(gpu="h100-sxm", nodes=8), network=network)


def trace_of(rank: int, groups: Sequence[tuple[int, ...]], streams: Sequence[int], host_ns: int = 0) -> Trace:
    """An all-to-all of each group, on its stream."""
    named = tuple(Group(f"group {at}", ranks, len(ranks)) for at, ranks in enumerate(groups))
    build = TraceBuilder(
        Manifest(world_size=WORLD, rank=rank, gpu="h100-sxm", gpus_per_node=8, script="", groups=named)
    )
    for index, stream in enumerate(streams):
        work = Collective("all_to_all", BYTES, "bfloat16", index)
        build.work(work, stream=stream, phase=Phase.FORWARD, host_ns=host_ns)
    return build.trace()


def evaluated(
    traces: Trace | list[Trace], target: Cluster, stands_for: dict[int, Sequence[int]], *, contention: bool = True
) -> Evaluation:
    options = Options.of(host_factor=0.0, host_time=False, contention=contention)
    return evaluate(Job.of(traces, stands_for=stands_for), target, options, changes=Changes())


def beside(target: Cluster, *, overlap: bool, contention: bool = True) -> Evaluation:
    """All-to-alls of two kinds of groups that cross leaves: (0, 32), … and (0, 16), …, on one or two streams."""
    trace = trace_of(0, ((0, 32), (0, 16)), (7, 11 if overlap else 7))
    return evaluated(trace, target, {0: range(1, WORLD)}, contention=contention)


def test_only_links_that_are_narrower_than_what_comes_to_them_can_be_crowded() -> None:
    rail, shared_ports = {"fabric": "rail", "leaf_nodes": 2}, {"leaf_nodes": 1, "nics": 4}
    for network, links in (({"leaf_nodes": 1}, 0), (NARROW, 16), (rail, 0), (shared_ports, 8 * 4 * 2)):
        target = cluster(**network)
        topology = topology_of(target, target.network)
        assert int(congestible_links(topology).sum()) == links
    ring = topology_of(cluster(), {"fabric": "ring"})
    assert congestible_links(ring).sum() == (~ring.within_nodes()).sum()


@pytest.mark.parametrize(("leaf_nodes", "links"), [(4, 2), (3, 6)])
def test_one_of_two_equal_links_in_line_can_be_crowded(leaf_nodes: int, links: int) -> None:
    """All that leaf 0 sends up comes down at leaf 1, over a link of the same bandwidth. Of three leaves all count."""
    topology = topology_of(cluster(), {"leaf_nodes": leaf_nodes, "oversubscription": 4.0})
    assert int(congestible_links(topology).sum()) == links


def test_exchanges_of_different_groups_share_a_narrow_uplink() -> None:
    """Beside each other they take nearly as long as one after the other; without contention half of that."""
    target = cluster(**NARROW)
    together, apart = beside(target, overlap=True).timeline, beside(target, overlap=False).timeline
    free = beside(target, overlap=True, contention=False).timeline
    assert free.makespan_ns == pytest.approx(apart.makespan_ns / 2, rel=0.02)
    assert 0.85 * apart.makespan_ns < together.makespan_ns <= 1.001 * apart.makespan_ns
    assert together.ports_ns.sum() > 0
    assert _said(beside(target, overlap=True)).endswith(
        "above all on leaf0 -> spine0 to the all_to_all of 'group 1' on rank 0."
    )


def test_alone_nothing_is_slowed() -> None:
    alone = beside(cluster(**NARROW), overlap=False)
    assert alone.timeline.slowed_ns.sum() == 0
    said = " ".join(alone.result.notes)
    assert "Collectives at the same time share 16 links of the fabric at flow level" in said
    assert "None slows another." in said


def test_sisters_that_run_at_other_times_leave_the_links() -> None:
    """Ranks 0 and 8 stand for the pairs from nodes 0 and 1, which share the uplink of their leaf while both run."""
    target = cluster(leaf_nodes=2, oversubscription=16.0)
    shares = {0: [*range(1, 8), *range(32, 40)], 8: [*range(9, 16), *range(40, 48)]}
    took = []
    for wait_ns in (0, 10**9):
        job = [trace_of(0, ((0, 32),), (7,)), trace_of(8, ((8, 40),), (7,), host_ns=wait_ns)]
        options = Options(host_factor=1.0)
        found = evaluate(Job.of(job, stands_for=shares), target, options, changes=Changes())
        took.append([int(one.end_ns[0] - one.start_ns[0]) for one in found.timelines.values()])
    assert took[0] == pytest.approx([2 * each for each in took[1]], rel=0.1)


def test_prices_count_what_a_simulated_rank_stands_for() -> None:
    """One rank for all: the price is that of all pairs at once. Every rank by itself: that of one pair."""
    target = cluster(**NARROW)
    priced = price_trace(trace_of(0, ((0, 32),), (7,)), target)
    whole = on_fabric(priced, target, Representatives([0], {0: range(1, WORLD)}))
    alone = on_fabric(priced, target, Representatives(range(WORLD)))
    assert whole.prices == priced.prices
    assert whole.prices[0].duration_ns > 3 * alone.prices[0].duration_ns
    again = on_fabric(whole, target, Representatives(range(WORLD)))
    assert again.prices == alone.prices
    assert whole.fabric is not None
    assert alone.fabric is not None
    flows = [one.flows[0] for one in (whole.fabric, alone.fabric)]
    assert all(one is not None for one in flows)
    up, own = (max(one.paths.flows_per_Bpns) for one in flows if one is not None)
    assert up == pytest.approx(8 * own)


@pytest.mark.parametrize("shares", [{0: range(1, 64)}, {0: [1, 2, 3], 8: [9]}, {0: [], 8: [], 17: []}])
def test_every_group_of_a_kind_belongs_to_one_simulated_rank(shares: dict[int, Sequence[int]]) -> None:
    """So all bytes are on the links once."""
    representatives = Representatives(list(shares), shares)
    found = [
        each
        for rank in shares
        for each in concurrent_groups(
            Collective("all_gather", 8, "bfloat16", 0), _pair_of(rank), rank, WORLD, representatives
        )
    ]
    assert sorted(found) == [(rank, rank + 32) for rank in range(32)]


def test_groups_that_a_simulated_rank_waits_for_are_one_transfer() -> None:
    """Rank 63 is simulated for itself. Its pair meets rank 0, which stands for its partner and for all other pairs."""
    representatives = Representatives([0, 63], {0: range(1, 63)})
    work = Collective("all_gather", 8, "bfloat16", 0)
    first, last = (concurrent_groups(work, _pair_of(rank), rank, WORLD, representatives) for rank in (0, 63))
    assert first == last == tuple((rank, rank + 32) for rank in range(32))


def test_messages_that_a_simulated_rank_waits_for_are_one_transfer() -> None:
    """Rank 32 receives for its whole stage, from rank 0 by itself and from rank 1, which stands for the others."""
    representatives = Representatives([0, 1, 32], {1: range(2, 32), 32: range(33, 64)})
    sent = [
        concurrent_groups(Collective("send", 8, "bfloat16", 0, peer=1), _pair_of(rank), rank, WORLD, representatives)
        for rank in (0, 1)
    ]
    assert sent[0] == sent[1] == tuple((rank, rank + 32) for rank in range(32))


def test_messages_go_where_their_sender_says() -> None:
    """A rank of the second stage receives from the first, and sends back."""
    group = Group("stages", (0, 32), 2)
    representatives = Representatives([0, 32], {0: range(1, 32), 32: range(33, 64)})
    kinds = ((32, "recv", 0), (0, "send", 1), (32, "send", 0))
    forth, same, back = (
        concurrent_groups(Collective(kind, 8, "bfloat16", 0, peer=peer), group, rank, WORLD, representatives)
        for rank, kind, peer in kinds
    )
    assert forth == same == tuple((rank, rank + 32) for rank in range(32))
    assert back == tuple((rank + 32, rank) for rank in range(32))


def test_a_cluster_without_a_network_is_left_alone() -> None:
    target = choose_cluster(gpu="h100-sxm", nodes=8)
    priced = price_trace(trace_of(0, ((0, 32),), (7,)), target)
    assert on_fabric(priced, target, Representatives([0])) is priced
    assert np.all(price_trace(priced.trace, cluster(**NARROW)).durations_ns() > priced.durations_ns())


def _pair_of(rank: int) -> Group:
    return Group("pair", (rank % 32, rank % 32 + 32), 2)


def _said(found: Evaluation) -> str:
    return next(note for note in found.result.notes if note.startswith("Collectives at the same time"))
