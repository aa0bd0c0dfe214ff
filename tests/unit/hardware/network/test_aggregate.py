"""All-to-alls counted between switches put on links what their flows do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from presim.hardware import choose_cluster
from presim.hardware.network.aggregate import all_to_alls
from presim.hardware.network.build_topology import topology_of
from presim.hardware.network.exchange import Exchange, link_loads, run
from presim.hardware.network.sharing import port_links
from presim.hardware.network.topology import Topology

NO_LATENCY = {"nvlink_latency_us": 0.0, "switch_latency_us": 0.0, "link_latency_us": 0.0}
EVERYONE = (tuple(range(64)),)
RAILS = tuple(tuple(range(place, 64, 8)) for place in range(8))
HALVES = (tuple(range(32)), tuple(range(32, 64)))
UNEVEN = ((0, 1, 2, 9, 17, 40, 41, 63),)


def topology(**table: Any) -> Topology:
    leaves = {} if table.get("fabric") in ("mesh", "torus") else {"leaf_nodes": 2}
    return topology_of(choose_cluster(gpu="h100-sxm", nodes=8), {**NO_LATENCY, **leaves, **table})


@pytest.mark.parametrize("groups", [EVERYONE, RAILS, HALVES, UNEVEN], ids=["everyone", "rails", "halves", "uneven"])
@pytest.mark.parametrize(
    "table",
    [
        {"oversubscription": 4.0},
        {"levels": 3, "pod_leaves": 2, "oversubscription": 2.0, "core_oversubscription": 2.0},
        {"fabric": "rail", "oversubscription": 2.0},
        {"fabric": "rail", "relay": False},
        {"fabric": "mesh"},
        {"nics": 4, "oversubscription": 2.0},
    ],
    ids=str,
)
def test_links_carry_what_flows_put_on_them(table: dict[str, Any], groups: tuple[tuple[int, ...], ...]) -> None:
    built = topology(**table)
    flows, size = link_loads(built, [Exchange("all_to_all", len(group), group) for group in groups])
    assert size == 1.0
    carried = all_to_alls(built, groups)
    assert carried is not None
    fabric = ~built.within_nodes()
    assert carried[fabric] == pytest.approx(flows[fabric])
    if groups == EVERYONE:  # evenly loaded ports
        assert carried[port_links(built)] == pytest.approx(flows[port_links(built)])


@pytest.mark.parametrize("table", [{"oversubscription": 4.0}, {"fabric": "rail", "oversubscription": 8.0}, {}], ids=str)
def test_the_time_is_that_of_all_flows(table: dict[str, Any]) -> None:
    """Of all ranks of a tree, where every flow that is late shares the busiest link or port."""
    built = topology(**table)
    carried = all_to_alls(built, EVERYONE)
    assert carried is not None
    (seconds,) = run(built, [Exchange("all_to_all", 64 * 10**9, EVERYONE[0])]).seconds
    assert (carried / built.bandwidth_Bps).max() * 10**9 == pytest.approx(seconds, rel=1e-6)


@pytest.mark.parametrize(
    "table",
    [
        {"fabric": "torus", "dims": (4, 2)},
        {"routing": "ecmp", "leaf_nodes": 1},
        {"fabric": "dragonfly", "leaf_nodes": 1},
    ],
    ids=str,
)
def test_where_several_shortest_paths_are_hashed_the_bytes_are_kept(table: dict[str, Any]) -> None:
    built = topology(**table)
    carried = all_to_alls(built, EVERYONE)
    assert carried is not None
    fabric = ~built.within_nodes()
    flows, _ = link_loads(built, [Exchange("all_to_all", 64, EVERYONE[0])])
    assert carried[fabric].sum() == pytest.approx(flows[fabric].sum())
    assert np.abs(carried[fabric] - flows[fabric]).max() < 0.5 * flows[fabric].max()


def test_a_network_without_switches_between_nodes_is_not_counted() -> None:
    assert all_to_alls(topology_of(choose_cluster(gpu="h100-sxm", nodes=1), {}), (tuple(range(8)),)) is None


def test_dispatch_sends_to_the_same_place_of_every_other_node() -> None:
    """Four nodes of two leaves, a fourth of the bandwidth upwards: two thirds of what 16 GPUs send cross leaves."""
    built = topology_of(
        choose_cluster(gpu="h100-sxm", nodes=4), {**NO_LATENCY, "leaf_nodes": 2, "oversubscription": 4.0}
    )
    found = run(built, [Exchange("dispatch", 10**9, tuple(range(32)))])
    assert len(found.flows.bytes) == 32 * 3
    assert found.seconds[0] == pytest.approx(16 * (2 / 3) / (16 * 50 / 4))
    alone = run(topology(leaf_nodes=1), [Exchange("combine", 10**9, tuple(range(32)))])
    assert alone.seconds[0] == pytest.approx(1 / 50)
    uneven = run(built, [Exchange("dispatch", 10**9, (0, 1, 8))])
    assert sorted(uneven.flows.bytes.tolist()) == [5e8, 5e8, 1e9, 1e9]
