"""Links within a node, and fabrics between nodes, on cases that can be worked out by hand."""

from __future__ import annotations

import re
from typing import Any

import pytest

from presim.errors import InputError
from presim.hardware import choose_cluster
from presim.hardware.network.build_topology import topology_of
from presim.hardware.network.exchange import Exchange, run
from presim.hardware.network.topology import Topology

GB = 10**9
NO_LATENCY = {"nvlink_latency_us": 0.0, "switch_latency_us": 0.0, "link_latency_us": 0.0}


def topology(gpu: str, nodes: int = 1, *, node: str | None = None, **table: Any) -> Topology:
    return topology_of(choose_cluster(gpu=gpu, node=node, nodes=nodes), {**NO_LATENCY, **table})


def rate(built: Topology, *pairs: tuple[int, int]) -> list[float]:
    """GB/s of each of several messages that are sent at once."""
    return [1.0 / took for took in run(built, [Exchange("send", GB, pair) for pair in pairs]).seconds]


def test_a_pair_of_a_cube_mesh_has_its_own_links_and_others_go_over_pcie() -> None:
    """A V100 has six links of 25 GB/s: two to GPU 3, one to GPU 1, none to GPU 5, which PCIe 3.0 x16 reaches."""
    built = topology("v100-32gb-sxm", node="dgx-v100")
    assert rate(built, (0, 3)) == pytest.approx([50.0])
    assert rate(built, (0, 1)) == pytest.approx([25.0])
    assert rate(built, (0, 5)) == pytest.approx([15.75], rel=0.01)
    assert rate(built, (0, 5), (0, 7)) == pytest.approx([15.75 / 2] * 2, rel=0.01)


def test_bridged_pairs_have_nvlink_between_each_other_only() -> None:
    built = topology("a40", node="pcie4-8-bridged")
    (near,), (far,) = rate(built, (2, 3)), rate(built, (1, 2))
    assert (near, far) == pytest.approx((56.25, 31.5), rel=0.01)


def test_gpus_behind_a_pcie_switch_share_its_uplink_and_sockets_their_link() -> None:
    tree = {"pcie_GBps": 20.0, "pcie_switch_gpus": 2, "socket_GBps": 30.0}
    built = topology("l40s", node="pcie4-8", **tree)
    assert rate(built, (0, 1), (1, 0)) == pytest.approx([20.0, 20.0])
    assert rate(built, (0, 2), (1, 3)) == pytest.approx([10.0, 10.0])
    assert rate(built, (0, 4), (2, 6)) == pytest.approx([15.0, 15.0])
    assert rate(topology("l40s", node="pcie4-8", **{**tree, "socket_GBps": 0.0}), (0, 4), (2, 6)) == pytest.approx(
        [20.0, 20.0]
    )


def test_a_torus_of_two_dimensions_divides_ports_among_four_neighbours() -> None:
    """4 x 4 nodes with eight ports of 50 GB/s: 100 GB/s each way of each dimension; node 0's neighbour is node 1."""
    built = topology("h100-sxm", 16, fabric="torus", dims=(4, 4))
    assert sum(rate(built, *((gpu, 8 + gpu) for gpu in range(8)))) == pytest.approx(100.0)
    assert sum(rate(built, *((gpu, 32 + gpu) for gpu in range(8)))) == pytest.approx(100.0)
    assert sum(rate(built, *((gpu, 24 + gpu) for gpu in range(8)))) == pytest.approx(100.0)  # the way around


def test_a_mesh_has_a_link_for_each_pair_of_nodes() -> None:
    """Five nodes with eight ports of 50 GB/s: 100 GB/s to each of the four others, whoever else sends."""
    built = topology("h100-sxm", 5, fabric="mesh")
    assert sum(rate(built, *((gpu, 8 + gpu) for gpu in range(8)))) == pytest.approx(100.0)
    both = rate(built, *((gpu, 8 + gpu) for gpu in range(4)), *((gpu, 16 + gpu) for gpu in range(4)))
    assert both == pytest.approx([25.0] * 8)


def test_groups_of_a_dragonfly_share_the_link_between_them() -> None:
    """Three groups of two routers, one node of 400 GB/s at each: 400 / (3 - 1) x 2 GB/s between two groups.

    Within a group a router has half of its node's bandwidth to each of two.
    """
    built = topology("h100-sxm", 6, fabric="dragonfly", leaf_nodes=1, pod_leaves=2)
    assert sum(rate(built, *((gpu, 8 + gpu) for gpu in range(8)))) == pytest.approx(200.0)
    between = {frozenset(built.link_name(link).split(" -> ")) for link in range(built.links)}
    assert {frozenset(("leaf0", "leaf2")), frozenset(("leaf1", "leaf4")), frozenset(("leaf3", "leaf5"))} <= between
    assert sum(rate(built, *((gpu, 16 + gpu) for gpu in range(8)))) == pytest.approx(400.0)
    narrow = topology("h100-sxm", 6, fabric="dragonfly", leaf_nodes=1, pod_leaves=2, oversubscription=4.0)
    assert sum(rate(narrow, *((gpu, 16 + gpu) for gpu in range(8)))) == pytest.approx(100.0)


def test_flows_that_ecmp_puts_on_one_path_share_it_and_adaptive_routing_does_not() -> None:
    """Two leaves, two uplinks of 200 GB/s: eight messages of 50 GB/s, of which a hash puts more than half on one."""
    names = {"leaf_nodes": 1, "spines": 2}
    pairs = [(gpu, 8 + gpu) for gpu in range(8)]
    assert rate(topology("h100-sxm", 2, **names), *pairs) == pytest.approx([50.0] * 8)
    for seed in range(4):
        hashed = topology("h100-sxm", 2, routing="ecmp", seed=seed, **names)
        found = run(hashed, [Exchange("send", GB, pair) for pair in pairs])
        upwards = [link for link in range(hashed.links) if hashed.link_name(link).startswith("leaf0 -> spine")]
        count = [int((found.flows.paths == link).any(axis=1).sum()) for link in upwards]
        assert sum(count) == 8
        assert max(found.seconds) == pytest.approx(max(max(count) / 200, 1 / 50))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"pcie_switch_gpus": -1}, "Expected `int` >= 0, not -1 - at `\\$.pcie_switch_gpus`"),
        ({"nics": 1, "pcie_GBps": float("inf")}, "Expected `float` <= 1000000.0, not inf - at `\\$.pcie_GBps`"),
        (
            {"links": [{"from": "gpu0", "to": "gpu1", "GBps": 1.0, "latency_us": -3.0}]},
            "Expected `float` >= 0.0, not -3.0 - at `\\$.links",
        ),
        ({"link_latency_us": -1.0}, "Expected `float` >= 0.0, not -1.0 - at `\\$.link_latency_us`"),
    ],
)
def test_a_node_that_cannot_be_is_one_sentence(table: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        topology("l40s", **table)


@pytest.mark.parametrize(
    ("nodes", "table", "message"),
    [
        (
            8,
            {"leaf_nodes": 4, "routing": "ecmp", "spines": 257},
            "spines = 257: a leaf with 32 ports to nodes has at most 256 links upwards (8 of a port); use fewer",
        ),
        (
            4000,
            {"fabric": "mesh"},
            "15,996,000 links between nodes or routers, each to each, and a network has at most",
        ),
        (
            8000,
            {"fabric": "dragonfly", "leaf_nodes": 1, "pod_leaves": 4000},
            "31,992,002 links between nodes or routers, each to each, and a network has at most 10,000,000; use fewer",
        ),
        (
            8,
            {"fabric": "torus", "oversubscription": 4.0},
            "oversubscription has no effect in a fabric 'torus' (only in",
        ),
        (8, {"fabric": "ring", "leaf_nodes": 4}, "leaf_nodes has no effect in a fabric 'ring'"),
        (8, {"dims": [4, 2]}, "dims has no effect in a fabric 'fat-tree' (only in torus)"),
        (8, {"relay": False}, "relay has no effect in a fabric 'fat-tree' (only in rail)"),
        (
            8,
            {"core_oversubscription": 2.0},
            "core_oversubscription has no effect in a tree of 2 levels; set levels = 3",
        ),
    ],
)
def test_a_fabric_refuses_what_it_cannot_have(nodes: int, table: dict[str, Any], message: str) -> None:
    """Keys without effect, and more links than a switch or a network holds, are refused before any link is built."""
    with pytest.raises(InputError, match=re.escape(message)):
        topology("h100-sxm", nodes, **table)


def test_a_leaf_has_as_many_links_upwards_as_its_ports_break_out_into() -> None:
    built = topology("h100-sxm", 2, routing="ecmp", leaf_nodes=1, spines=64)
    assert sum(name.startswith("spine") for name in built.names) == 64


def test_sides_of_a_torus_of_nodes_are_refused_where_all_are_in_one_domain() -> None:
    """Two hosts of four chips of one pod: before, sides were read and changed nothing."""
    with pytest.raises(
        InputError, match=r"^\[network\] dims = \[2, 2\] give 4 nodes, but all 8 GPUs of the cluster are"
    ):
        topology("tpu-v5p", 2, fabric="torus", dims=(2, 2))
