"""Collectives on topologies whose times can be worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from presim.errors import InputError
from presim.hardware import choose_cluster
from presim.hardware.network.build_topology import topology_of
from presim.hardware.network.exchange import Exchange, run
from presim.hardware.network.topology import Topology

GIB = 1 << 30
NO_LATENCY = {"nvlink_latency_us": 0.0, "switch_latency_us": 0.0, "link_latency_us": 0.0}
NIC, NVLINK = 50e9, 450e9


def fabric(nodes: int, **table: Any) -> Topology:
    return topology_of(choose_cluster(gpu="h100-sxm", nodes=nodes), {**NO_LATENCY, **table})


def seconds(topology: Topology, kind: str, ranks: range, size: int = GIB) -> float:
    return run(topology, [Exchange(kind, size, tuple(ranks))]).seconds[0]


def test_a_ring_within_a_node_is_as_fast_as_nvlink() -> None:
    """Eight rings over eight GPUs: each GPU sends 2 x 7/8 of the bytes over its links."""
    assert seconds(fabric(1), "all_reduce", range(8)) == pytest.approx(2 * 7 / 8 * GIB / NVLINK)


@pytest.mark.parametrize(
    "table", [{}, {"fabric": "rail"}, {"fabric": "rail", "leaf_nodes": 1}, {"levels": 3, "leaf_nodes": 1}]
)
def test_a_ring_between_nodes_is_as_fast_as_all_ports_of_a_node(table: dict[str, Any]) -> None:
    """Without oversubscription no fabric is slower than the ports: one eighth of the bytes goes through each."""
    expected = 2 * 31 / 32 * GIB / 8 / NIC
    assert seconds(fabric(4, **table), "all_reduce", range(32)) == pytest.approx(expected)


def test_an_all_to_all_goes_through_each_gpu_s_own_port() -> None:
    expected = 24 / 32 * GIB / NIC
    assert seconds(fabric(4, fabric="rail"), "all_to_all", range(32)) == pytest.approx(expected)


def test_oversubscribed_leaves_pass_on_less() -> None:
    """Two leaves of two nodes, a fourth of the ports' bandwidth upwards: 16 GPUs send half of their bytes across."""
    expected = 16 * 16 / 32 * GIB / (16 * NIC / 4)
    topology = fabric(4, leaf_nodes=2, oversubscription=4.0)
    assert seconds(topology, "all_to_all", range(32)) == pytest.approx(expected)


def test_groups_that_meet_at_a_link_share_it() -> None:
    """Messages of 4 nodes at one leaf to 4 at another: an uplink with the bandwidth of 2 of the 4 nodes."""
    topology = fabric(8, leaf_nodes=4, oversubscription=2.0)
    alone = run(topology, [Exchange("send", GIB, (0, 32))])
    assert alone.seconds[0] == pytest.approx(GIB / NIC)
    all_at_once = [Exchange("send", GIB, (rank, rank + 32)) for rank in range(32)]
    assert run(topology, all_at_once).seconds == pytest.approx([2 * GIB / NIC] * 32)


@pytest.mark.parametrize("table", [{"fabric": "ring"}, {"fabric": "torus"}])
def test_a_ring_of_nodes_carries_a_message_to_the_far_side(table: dict[str, Any]) -> None:
    """Half of a node's ports lead each way."""
    assert seconds(fabric(6, nics=8, **table), "send", range(0, 25, 24)) == pytest.approx(GIB / NIC)
    eight = [Exchange("send", GIB, (rank, rank + 8)) for rank in range(8)]
    assert max(run(fabric(6, **table), eight).seconds) == pytest.approx(8 * GIB / (4 * NIC))


@pytest.mark.parametrize(
    ("name", "switches"),
    [
        ("fat-tree", {"leaf_nodes": 2, "pod_leaves": 2, "levels": 3}),
        ("rail", {"leaf_nodes": 2, "pod_leaves": 2, "levels": 3}),
        ("dragonfly", {"leaf_nodes": 2, "pod_leaves": 2}),
        ("torus", {}),
        ("ring", {}),
        ("mesh", {}),
    ],
)
@pytest.mark.parametrize("routing", ["adaptive", "ecmp"])
def test_every_fabric_reaches_everybody_and_more_bandwidth_is_never_slower(
    name: str, switches: dict[str, int], routing: str
) -> None:
    topology = fabric(6, fabric=name, routing=routing, **switches)
    slow = seconds(topology, "all_to_all", range(0, 48, 3))
    assert slow > 0
    assert seconds(topology.scaled(2.0), "all_to_all", range(0, 48, 3)) == pytest.approx(slow / 2)


def test_ecmp_is_never_faster_than_spreading() -> None:
    tables = [
        {"fabric": "fat-tree", "routing": routing, "leaf_nodes": 1, "spines": 8} for routing in ("adaptive", "ecmp")
    ]
    spread, hashed = (seconds(fabric(8, **table), "all_to_all", range(0, 64, 8)) for table in tables)
    assert spread <= hashed * (1 + 1e-9)


def test_latency_is_that_of_the_path() -> None:
    """GPU, NIC, leaf, NIC, GPU: two halves of the host's, two wires."""
    topology = fabric(2, nvlink_latency_us=1.0, link_latency_us=2.0)
    assert seconds(topology, "send", range(0, 9, 8), 0) == pytest.approx(5e-6)


def test_the_link_level_answer_is_a_bound_of_the_flow_level_one() -> None:
    topology = fabric(4, leaf_nodes=2, oversubscription=4.0)
    both = [
        run(topology, [Exchange("all_to_all", GIB, tuple(range(32)))], resolution).seconds[0]
        for resolution in ("link", "flow")
    ]
    assert both[0] <= both[1] * (1 + 1e-9)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"links": [{"from": "gpu0", "to": "gpu99", "GBps": 1.0}]},
            "a link leads to 'gpu99', but the network has no such",
        ),
        (
            {"links": [{"from": "gpu0", "to": "gpu1", "GBps": 0.0}]},
            r"\[network\] cannot be used: Expected `float` >= 0.001, not 0.0 - at `\$.links\[0\].GBps`; see",
        ),
        ({"fabric": "torus", "dims": [3, 3]}, r"dims = \[3, 3\] give 9 nodes, but the cluster has 2; make them equal"),
        ({"fabric": "hypercube"}, r"the cluster's \[network\] cannot be used: Invalid enum value 'hypercube'"),
        ({"oversubscription": 0.5}, r"\[network\] oversubscription = 0.5: it must be at least 1"),
        ({"factors": {"leaf0": 0.0}}, "the links of leaf0 have a factor of 0; set more than 0"),
    ],
)
def test_a_description_that_cannot_be_is_one_sentence(table: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fabric(2, **table)


def test_ranks_without_a_gpu_are_named() -> None:
    with pytest.raises(InputError, match="rank 31 communicates, but the network has 16 GPUs; give it at least 32"):
        seconds(fabric(2), "all_reduce", range(32))
