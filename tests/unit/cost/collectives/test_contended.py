"""Collectives of a cluster whose network is described."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from presim.cost.chain import price_trace
from presim.cost.collectives import fabric_traffic
from presim.cost.collectives.contended import BY_LINK, NAME, Contended
from presim.cost.collectives.expert_exchange import NAME as EXPERTS
from presim.cost.collectives.fabric_traffic import paths_of, sisters_of
from presim.cost.collectives.hierarchical import Hierarchical
from presim.cost.collectives.network_model import Transfer, first_answers
from presim.cost.collectives.network_models import collective_models
from presim.cost.price import Price
from presim.hardware import Cluster, choose_cluster
from presim.trace.builder import TraceBuilder
from presim.trace.collective import Routed
from presim.trace.schema import Group, Manifest
from presim.trace.signatures import Collective

ALL = tuple(range(64))


def cluster(**network: Any) -> Cluster:
    return msgspec.structs.replace(choose_cluster(gpu="h100-sxm", nodes=8), network=network)


def price(kind: str, ranks: tuple[int, ...], target: Cluster) -> Price:
    collective, group = Collective(kind, 1 << 28, "bfloat16", 0), Group("g", ranks, len(ranks))
    answer = first_answers(collective_models(target), [Transfer(collective, group)], target)[0]
    assert answer is not None
    return answer


@pytest.mark.parametrize("kind", ["all_reduce", "all_to_all"])
def test_where_nothing_is_shared_the_price_is_the_analytic_one(kind: str) -> None:
    """A rail-optimised fabric without oversubscription, and whatever stays within a node."""
    assert price(kind, ALL, cluster(fabric="rail", leaf_nodes=2)) == price(kind, ALL, cluster())
    narrow = cluster(leaf_nodes=1, oversubscription=8.0)
    assert price(kind, tuple(range(8)), narrow) == price(kind, tuple(range(8)), cluster())


def test_sisters_that_meet_at_an_uplink_slow_each_other() -> None:
    """Pairs of ranks on different leaves: eight of a node want the uplink that has the bandwidth of two."""
    free, narrow = cluster(leaf_nodes=1), cluster(leaf_nodes=1, oversubscription=4.0)
    pair = (0, 32)
    assert price("all_to_all", pair, free).estimator == "analytic/hierarchical"
    slow = price("all_to_all", pair, narrow)
    assert slow.estimator == NAME
    wire_ns = (1 << 27) / 50e9 * 1e9
    assert slow.duration_ns == pytest.approx(4 * wire_ns, rel=1e-6)


def test_a_message_is_one_of_all_that_stages_send() -> None:
    narrow = cluster(leaf_nodes=1, oversubscription=4.0)
    assert price("send", ALL[::8], narrow).estimator == NAME


def test_the_result_says_which_were_simulated() -> None:
    groups = (Group("all", ALL, 64), Group("node", ALL[:8], 8))
    build = TraceBuilder(Manifest(world_size=64, rank=0, gpu="h100-sxm", gpus_per_node=8, script="", groups=groups))
    build.work(Collective("all_to_all", 1 << 28, "bfloat16", 0))
    build.work(Collective("all_to_all", 1 << 28, "bfloat16", 1))
    notes = price_trace(build.trace(), cluster(leaf_nodes=1, oversubscription=4.0)).notes
    assert notes[0].startswith(
        "The network is described: 1 of 2 collectives share links and are simulated flow by flow"
    )


def test_transfers_that_run_at_the_same_time_share_links() -> None:
    """Pairs of ranks on leaves 0 and 4, and 0 and 2, both want the uplinks of leaf 0; a pair within a node does not."""
    narrow = cluster(leaf_nodes=1, oversubscription=8.0)
    far, near, inside = (
        Transfer(Collective("all_to_all", 1 << 28, "bfloat16", 0), Group("g", (0, other), 2)) for other in (32, 16, 4)
    )
    alone = [price("all_to_all", one.group.ranks, narrow).duration_ns for one in (far, near, inside)]
    model = Contended(Hierarchical())
    together = [each.duration_ns for each in model.price([far, near, inside], narrow) if each is not None]
    assert together[:2] == pytest.approx([2 * took for took in alone[:2]], rel=0.15)
    assert together[2] == alone[2]


def test_groups_that_do_not_run_leave_the_links_to_others() -> None:
    """Of one kind only the pair of ranks 0 and 32 exchanges: it takes an eighth of what leaf 0 has to carry."""
    narrow = cluster(leaf_nodes=1, oversubscription=8.0)
    group = Group("g", (0, 32), 2)
    work = Collective("all_to_all", 1 << 28, "bfloat16", 0)
    other = Transfer(work, Group("h", (0, 16), 2))
    model = Contended(Hierarchical())
    whole, part = Transfer(work, group), Transfer(work, group, running=((0, 32),))
    slow, quick = (model.price([one, other], narrow)[1] for one in (whole, part))
    assert slow is not None
    assert quick is not None
    assert quick.duration_ns < 0.6 * slow.duration_ns


def test_an_all_to_all_of_too_many_flows_is_counted_by_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its price and what it puts on links are those of its flows; the factor is another key for the caches."""
    collective, group = Collective("all_to_all", 1 << 28, "bfloat16", 0), Group("g", ALL, 64)
    narrow, same = (cluster(leaf_nodes=2, oversubscription=4.0, factors={"spine0": one}) for one in (1.0, 1 + 1e-9))
    flows = price("all_to_all", ALL, narrow)
    by_flow = paths_of(Hierarchical(), collective, sisters_of(collective, group, narrow), narrow)
    monkeypatch.setattr(fabric_traffic, "MOST_FLOWS", 1000)
    counted = price("all_to_all", ALL, same)
    by_link = paths_of(Hierarchical(), collective, sisters_of(collective, group, same), same)
    assert (flows.estimator, counted.estimator) == (NAME, BY_LINK)
    assert counted.duration_ns == pytest.approx(flows.duration_ns, rel=1e-6)
    assert by_flow[0] is not None
    assert by_link[0] is not None
    assert by_link[0].links == by_flow[0].links
    assert by_link[0].flows_per_Bpns == pytest.approx(by_flow[0].flows_per_Bpns, rel=1e-6)
    assert by_link[1] == by_flow[1]


def test_an_exchange_of_experts_takes_longer_through_narrow_uplinks() -> None:
    """Tokens to 32 GPUs on four nodes: what leaves a leaf of two nodes has an eighth of their ports' bandwidth."""
    routed = Routed("deepep", 4096, 14336, 8, 256, 24)
    group = Group("experts", ALL[:32], 32)
    dispatch = Collective("dispatch", 4096 * 14336, "bfloat16", 0, routed=routed)

    def answer(target: Cluster) -> Price:
        found = first_answers(collective_models(target), [Transfer(dispatch, group)], target)[0]
        assert found is not None
        return found

    free, narrow = cluster(leaf_nodes=2), cluster(leaf_nodes=2, oversubscription=8.0)
    assert answer(free).estimator == EXPERTS
    slow = answer(narrow)
    assert slow.estimator == NAME
    paths, size = paths_of(Hierarchical(), dispatch, sisters_of(dispatch, group, narrow), narrow)
    assert paths is not None
    far = size * 3  # to each of three other nodes
    across_s = 16 * far * (2 / 3) / (16 * 50e9 / 8)
    assert slow.duration_ns == pytest.approx(across_s * 1e9, rel=1e-6)
