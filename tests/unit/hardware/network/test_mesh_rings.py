"""Rings through a mesh of links."""

from __future__ import annotations

import pytest

from presim import hardware
from presim.hardware.network.build_topology import topology_of
from presim.hardware.network.exchange import Exchange, link_loads, run
from presim.hardware.network.mesh_rings import count_rings, ring_orders
from presim.hardware.network.topology import Topology

GIB = 1 << 30
LINKS = hardware.node("dgx-v100").links


@pytest.mark.parametrize(("gpus", "rings"), [(2, 1), (3, 2), (4, 4), (6, 2), (7, 4), (8, 6)])
def test_a_cube_of_v100_has_the_rings_that_its_measured_bandwidth_shows(gpus: int, rings: int) -> None:
    """23 GB/s a ring: 23, 45, 86, 46, 88, 136 GB/s of bus bandwidth on the first 2, 3, 4, 6, 7, 8 (vTrain f8dda84)."""
    assert count_rings(LINKS, tuple(range(gpus))) == rings


def test_no_ring_passes_a_gpu_with_one_neighbour() -> None:
    assert count_rings(LINKS, tuple(range(5))) == 0


def test_pairs_have_one_ring_per_link() -> None:
    assert [count_rings(LINKS, (0, other)) for other in (1, 3, 5)] == [1, 2, 0]


def test_a_complete_mesh_has_two_rings_per_cycle() -> None:
    complete = tuple(tuple(int(one != other) for other in range(5)) for one in range(5))
    assert count_rings(complete, tuple(range(5))) == 4


@pytest.mark.parametrize("gpus", [3, 4, 5, 6, 7, 8, 10, 11, 16, 33])
def test_orders_visit_each_gpu_once_and_share_no_link(gpus: int) -> None:
    complete = tuple(tuple(int(row != column) for column in range(gpus)) for row in range(gpus))
    orders = ring_orders(complete, tuple(range(gpus)))
    hops = [hop for order in orders for hop in zip(order, (*order[1:], order[0]), strict=True)]
    assert {tuple(sorted(order)) for order in orders} == {tuple(range(gpus))}
    assert len(set(hops)) == len(hops) == len(orders) * gpus
    assert len(orders) == 2 * ((gpus - 1) // 2)


def test_more_gpus_than_orders_are_tried_for_have_rings_in_their_order() -> None:
    ring = tuple(tuple(int((row - column) % 16 in (1, 15)) for column in range(16)) for row in range(16))
    assert ring_orders(ring, tuple(range(16))) == (tuple(range(16)), (0, *range(15, 0, -1)))


def network(gpu: str, nodes: int, **table: object) -> Topology:
    no_latency = {"nvlink_latency_us": 0.0, "switch_latency_us": 0.0, "link_latency_us": 0.0}
    return topology_of(hardware.choose_cluster(gpu=gpu, nodes=nodes, gpus_per_node=8), {**no_latency, **table})


@pytest.mark.parametrize(
    ("gpu", "rings", "link_GBps"), [("mi300x", 6, 64), ("mi355x", 6, 76.8), ("v100-32gb-sxm", 6, 25)]
)
def test_an_all_reduce_in_a_mesh_uses_the_links_of_all_its_rings(gpu: str, rings: int, link_GBps: float) -> None:
    outcome = run(network(gpu, 1), [Exchange("all_reduce", GIB, tuple(range(8)))])
    assert outcome.seconds[0] == pytest.approx(2 * 7 / 8 * GIB / (rings * link_GBps * 1e9))


def test_rings_of_meshes_enter_and_leave_nodes_by_all_ports_alike() -> None:
    topology = network("mi300x", 4, leaf_nodes=1)
    carried, _ = link_loads(topology, [Exchange("all_reduce", GIB, tuple(range(32)))])
    ports = [link for link in range(topology.links) if topology.link_name(link).endswith("-> leaf1")]
    assert len(ports) >= 8
    of_nics = [carried[link] for link in ports if ".nic" in topology.link_name(link)]
    assert of_nics == pytest.approx([2 * 31 / 32 * GIB / 8] * 8)


def test_a_slow_link_carries_no_ring() -> None:
    """Two GPUs with a tenth of the bandwidth between them; rings avoid that link."""
    slow = network("mi300x", 1, links=[{"from": "gpu0", "to": "gpu1", "GBps": 6.4}])
    seconds = [
        run(topology, [Exchange("all_reduce", GIB, tuple(range(8)))]).seconds[0]
        for topology in (network("mi300x", 1), slow)
    ]
    assert seconds[0] <= seconds[1] <= 1.6 * seconds[0]


def test_without_a_mesh_there_are_no_rings() -> None:
    assert count_rings((), ()) == 0
    assert count_rings(LINKS, (0,)) == 0
    assert count_rings(LINKS, (0, 8)) == 0
