"""Fabrics between nodes: their switches and links.

Adaptive routing spreads every flow evenly over all shortest paths. Parallel switches of one level are then one vertex
with the sum of their links, because they carry equal loads. With ECMP every switch is a vertex, and a hash selects one
path per flow.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from presim.errors import InputError
from presim.hardware.network.topology import MOST_LINKS, Builder

if TYPE_CHECKING:
    from presim.hardware.network.build_topology import TopologyPlan

# Links into which a switch port breaks out: an 800G port of NVIDIA Spectrum-4 is up to eight links of 100G.
_PORT_LINKS = 8


def fat_tree(builder: Builder, plan: TopologyPlan) -> None:
    """Connect all NICs of a node to one leaf switch; spines above leaves, cores above pods of leaves."""
    leaves = _leaves(
        builder, plan, [(node, nic) for node in range(plan.nodes) for nic in range(plan.nics)], "", plan.nics
    )
    _add_upper_levels(builder, plan, leaves, plan.description.leaf_nodes * plan.nics)


def rail(builder: Builder, plan: TopologyPlan) -> None:
    """Connect NIC i of every node to the leaves of rail i: one leaf per rail and group of nodes."""
    leaves = [
        leaf
        for nic in range(plan.nics)
        for leaf in _leaves(builder, plan, [(node, nic) for node in range(plan.nodes)], f"rail{nic}.", 1)
    ]
    _add_upper_levels(builder, plan, leaves, plan.description.leaf_nodes)


def dragonfly(builder: Builder, plan: TopologyPlan) -> None:
    """Fully connected groups of routers; every group has a link to every other group, one router after the other."""
    routers = _leaves(
        builder, plan, [(node, nic) for node in range(plan.nodes) for nic in range(plan.nics)], "", plan.nics
    )
    down_Bps = plan.description.leaf_nodes * plan.nics * plan.nic_Bps
    size = plan.description.pod_leaves
    groups = [routers[start : start + size] for start in range(0, len(routers), size)]
    _check_pairs(sum(math.comb(len(group), 2) for group in groups) + math.comb(len(groups), 2), "pod_leaves")
    for group in groups:
        for router, other_router in itertools.combinations(group, 2):
            builder.both_ways(router, other_router, down_Bps / len(group), plan.hop_ns)
    for first_index, second_index in itertools.combinations(range(len(groups)), 2):
        first_group, second_group = groups[first_index], groups[second_index]
        share = (
            down_Bps * min(len(first_group), len(second_group)) / (len(groups) - 1) / plan.description.oversubscription
        )
        builder.both_ways(
            first_group[(second_index - 1) % len(first_group)],
            second_group[first_index % len(second_group)],
            share,
            plan.hop_ns,
        )


def torus(builder: Builder, plan: TopologyPlan) -> None:
    """Nodes in a grid with wrap-around; a node's ports are divided among its neighbours."""
    dims = plan.description.dims or (plan.nodes,)
    if math.prod(dims) != plan.nodes:
        raise InputError(
            f"[network] dims = {list(dims)} give {math.prod(dims)} nodes, but the cluster has {plan.nodes}; "
            "make them equal"
        )
    routers = [_router(builder, plan, node) for node in range(plan.nodes)]
    neighbours = sum(1 if size == 2 else 2 for size in dims if size > 1)
    port_Bps = plan.nics * plan.nic_Bps / neighbours
    stride = 1
    for size in dims:
        for node in range(plan.nodes):
            coordinate = node // stride % size
            if size > 1 and not (size == 2 and coordinate == 1):
                builder.both_ways(
                    routers[node],
                    routers[node + ((coordinate + 1) % size - coordinate) * stride],
                    port_Bps,
                    plan.hop_ns,
                )
        stride *= size


def ring(builder: Builder, plan: TopologyPlan) -> None:
    """A torus of one dimension."""
    routers = [_router(builder, plan, node) for node in range(plan.nodes)]
    link_Bps = plan.nics * plan.nic_Bps / (2 if plan.nodes > 2 else 1)
    for node in range(plan.nodes if plan.nodes > 2 else 1):
        builder.both_ways(routers[node], routers[(node + 1) % plan.nodes], link_Bps, plan.hop_ns)


def mesh(builder: Builder, plan: TopologyPlan) -> None:
    """A direct link between every two nodes, without switches."""
    _check_pairs(math.comb(plan.nodes, 2), "nodes")
    routers = [_router(builder, plan, node) for node in range(plan.nodes)]
    link_Bps = plan.nics * plan.nic_Bps / (plan.nodes - 1)
    for router, other_router in itertools.combinations(routers, 2):
        builder.both_ways(router, other_router, link_Bps, plan.hop_ns)


FABRICS: dict[str, Callable[[Builder, TopologyPlan], None]] = {
    "fat-tree": fat_tree,
    "rail": rail,
    "dragonfly": dragonfly,
    "torus": torus,
    "ring": ring,
    "mesh": mesh,
}


def _check_pairs(pairs: int, key: str) -> None:
    """Refuse a fabric with too many direct links before any is added."""
    if 2 * pairs > MOST_LINKS:
        raise InputError(
            f"[network] gives {2 * pairs:,} links between nodes or routers, each to each, and a network has at most "
            f"{MOST_LINKS:,}; use fewer {key}"
        )


def _uplinks(plan: TopologyPlan, ports: int) -> int:
    """Links upwards from a leaf with so many ports downwards, each to a switch of its own under ECMP.

    Raises:
        InputError: ``spines`` are more than the leaf's ports break out into.
    """
    description = plan.description
    if description.routing == "adaptive":
        return 1
    if description.spines > _PORT_LINKS * ports:
        raise InputError(
            f"[network] spines = {description.spines}: a leaf with {ports:,} ports to nodes has at most "
            f"{_PORT_LINKS * ports:,} links upwards ({_PORT_LINKS} of a port); use fewer"
        )
    return description.spines or max(round(ports / description.oversubscription), 1)


def _router(builder: Builder, plan: TopologyPlan, node: int) -> int:
    router = builder.vertex(f"node{node}.router")
    for nic in range(plan.nics):
        builder.both_ways(builder.vertex(f"node{node}.nic{nic}"), router, plan.of(node).nic_Bps, 0.0)
    return router


def _leaves(builder: Builder, plan: TopologyPlan, ports: list[tuple[int, int]], name: str, per_node: int) -> list[int]:
    """Leaf switches, each with the ports of ``leaf_nodes`` nodes."""
    size = plan.description.leaf_nodes * per_node
    if plan.description.levels == 1 and plan.description.fabric != "dragonfly":
        size = len(ports)
    leaves = []
    for start in range(0, len(ports), size):
        leaf = builder.vertex(f"{name}leaf{start // size}")
        leaves.append(leaf)
        for node, nic in ports[start : start + size]:
            builder.both_ways(
                builder.vertex(f"node{node}.nic{nic}"),
                leaf,
                plan.of(node).nic_Bps,
                plan.description.link_latency_us * 1e3,
            )
    return leaves


def _add_upper_levels(builder: Builder, plan: TopologyPlan, leaves: list[int], ports: int) -> None:
    """Add spines above leaves and, with three levels, cores above pods."""
    description = plan.description
    if len(leaves) == 1:
        return
    up_Bps = ports * plan.nic_Bps / description.oversubscription
    size = description.pod_leaves if description.levels == 3 else len(leaves)
    pods = [leaves[start : start + size] for start in range(0, len(leaves), size)]
    fan = _uplinks(plan, ports)
    tops: list[list[int]] = []
    for pod_index, pod in enumerate(pods):
        prefix = f"pod{pod_index}." if len(pods) > 1 else ""
        spines = [builder.vertex(f"{prefix}spine{spine_index}") for spine_index in range(fan)]
        tops.append(spines)
        for leaf in pod:
            for spine in spines:
                builder.both_ways(leaf, spine, up_Bps / fan, plan.hop_ns)
    if len(pods) > 1:
        for spine_index in range(fan):
            core = builder.vertex(f"core{spine_index}")
            for pod, spines in zip(pods, tops, strict=True):
                builder.both_ways(
                    spines[spine_index], core, up_Bps * len(pod) / fan / description.core_oversubscription, plan.hop_ns
                )
