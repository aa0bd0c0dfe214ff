"""Inside of a node: links between its GPUs, its PCIe tree, and its NICs.

NVLink is an all-to-all switch, links between some or all pairs, or bridges between neighbours. GPUs without NVLink
between them meet over PCIe: `pcie_switch_gpus` behind one switch, switches at the root of a socket, sockets joined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from presim.hardware.network.topology import Builder

if TYPE_CHECKING:
    from presim.hardware.network.build_topology import TopologyPlan


def add_node(builder: Builder, plan: TopologyPlan, node: int) -> None:
    """Connect a node's GPUs with each other, and each with its NIC."""
    gpus = range(node * plan.per_node, (node + 1) * plan.per_node)
    joined = _nvlink(builder, plan, node, gpus) if plan.per_node > 1 else True
    above = {} if joined else _pcie(builder, plan, node, gpus)
    if plan.nodes == 1:
        return
    at_tree = plan.node in ("pcie", "nvlink-pairs") and bool(above)
    for gpu_index, gpu in enumerate(gpus):
        nic = builder.vertex(f"node{node}.nic{gpu_index * plan.nics // plan.per_node}")
        if not at_tree:
            builder.both_ways(gpu, nic, plan.pcie_Bps, half_ns(plan))
        elif gpu_index * plan.nics % plan.per_node < plan.nics:
            builder.both_ways(above[gpu], nic, plan.pcie_Bps, half_ns(plan))


def half_ns(plan: TopologyPlan) -> float:
    """Latency of one of the two links between neighbouring GPUs."""
    return plan.description.nvlink_latency_us * 500


def _nvlink(builder: Builder, plan: TopologyPlan, node: int, gpus: range) -> bool:
    """Connect GPUs by NVLink; whether all pairs are joined."""
    if plan.node == "nvswitch":
        switch = builder.vertex(f"node{node}.nvswitch")
        for gpu in gpus:
            builder.both_ways(gpu, switch, plan.nvlink_Bps, half_ns(plan))
        return True
    joined = plan.node != "pcie"
    for gpu_index, gpu in enumerate(gpus):
        for other_index in range(gpu_index + 1, len(gpus)):
            share = _share(plan, gpu_index, other_index)
            joined = joined and share > 0
            if share > 0:
                builder.both_ways(gpu, gpus[other_index], plan.nvlink_Bps * share, 2 * half_ns(plan))
    return joined


def _share(plan: TopologyPlan, lower: int, higher: int) -> float:
    """Share of a GPU's NVLink bandwidth that leads to another GPU of its node; indices in the node."""
    if plan.node == "nvlink-mesh" and plan.links:
        return plan.links[lower][higher] / max(sum(row) for row in plan.links)
    if plan.node == "nvlink-mesh":
        return 1 / (plan.per_node - 1)
    return float(plan.node == "nvlink-pairs" and lower % 2 == 0 and higher == lower + 1)


def _pcie(builder: Builder, plan: TopologyPlan, node: int, gpus: range) -> dict[int, int]:
    """Connect GPUs by the PCIe tree; the vertex above each GPU."""
    sockets = plan.sockets if plan.description.socket_GBps else 1
    size = plan.description.pcie_switch_gpus
    roots = [builder.vertex(f"node{node}.pcie{socket if sockets > 1 else ''}") for socket in range(sockets)]
    for socket in range(1, sockets):
        builder.both_ways(roots[0], roots[socket], plan.description.socket_GBps * 1e9, half_ns(plan))
    above: dict[int, int] = {}
    for gpu_index, gpu in enumerate(gpus):
        vertex = roots[gpu_index * sockets // len(gpus)]
        if size:
            switch = builder.vertex(f"node{node}.pcie-switch{gpu_index // size}")
            if gpu_index % size == 0:
                builder.both_ways(switch, vertex, plan.pcie_Bps, half_ns(plan))
            vertex = switch
        builder.both_ways(gpu, vertex, plan.pcie_Bps, half_ns(plan))
        above[gpu] = vertex
    return above
