"""Load of all-to-alls of very many ranks on a fabric, from the traffic between the switches that nodes attach to.

All flows between two switches are counted together: 16,384 ranks are 268 million flows, and 16,256 pairs of 128 leaf
switches. They divide evenly where shortest paths do, as hashes of so many flows. The time is that of the busiest link,
as all flows go on in step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from presim.hardware.network.flow_kernels import fast
from presim.hardware.network.path_kernels import divide
from presim.hardware.network.routing import routes
from presim.hardware.network.topology import Floats, Ints, Topology

_MOST_STEPS = 500_000_000  # receiving switches times links: some seconds


def all_to_alls(topology: Topology, groups: Sequence[tuple[int, ...]]) -> Floats | None:
    """Bytes by link of the fabric and of ports, for 1 byte from each rank of a group to every other rank of it.

    None: the network has no switches between nodes, or too many.
    """
    per_node = topology.gpus_per_node
    if topology.transit or not per_node or topology.gpus <= per_node:
        return None
    switch_by_gpu, switches = _switches_of_gpus(topology)
    pairs = np.zeros((len(switches), len(switches)))
    bytes_by_node = np.zeros(topology.gpus // per_node)
    for group in groups:
        ranks = np.array(group, np.int64)
        members = np.bincount(ranks // per_node, minlength=len(bytes_by_node))
        pairs += _count_flows(topology, ranks, members, switch_by_gpu, len(switches))
        bytes_by_node += members * (len(ranks) - members)
    np.fill_diagonal(pairs, 0.0)
    carried = _bytes_by_link(topology, pairs, switches)
    return None if carried is None else carried + _bytes_by_port(topology, bytes_by_node)


def _fabric_vertices(topology: Topology) -> Ints:
    """The vertices between nodes."""
    inside = [".nic" in name or name.startswith(("gpu", "node")) for name in topology.names]
    routers = [name.startswith("node") and name.endswith(".router") for name in topology.names]
    return np.flatnonzero(~np.array(inside) | np.array(routers))


def _switches_of_gpus(topology: Topology) -> tuple[Ints, Ints]:
    """By GPU, the index of the switch that its traffic enters the fabric at; and the vertices of these switches."""
    ranks = np.arange(topology.gpus)
    paths = routes(topology, ranks, (ranks + topology.gpus_per_node) % topology.gpus)
    reached = np.where(paths >= 0, topology.target[np.maximum(paths, 0)], -1)
    first = np.argmax(np.isin(reached, _fabric_vertices(topology)), axis=1)
    switches, switch_by_gpu = np.unique(reached[ranks, first], return_inverse=True)
    return switch_by_gpu.reshape(-1), switches


def _bytes_by_port(topology: Topology, bytes_by_node: Floats) -> Floats:
    """Bytes by link, of those between a NIC and the fabric: what a node sends, and as much as it receives."""
    is_switch = np.isin(np.arange(len(topology.names)), _fabric_vertices(topology))
    is_nic = np.array([".nic" in name for name in topology.names])
    carried = np.zeros(topology.links)
    for nics, switches in ((topology.source, topology.target), (topology.target, topology.source)):
        links = np.flatnonzero(is_nic[nics] & is_switch[switches])
        node = np.array([int(topology.names[nic].removeprefix("node").split(".")[0]) for nic in nics[links]])
        Bps = topology.bandwidth_Bps[links]
        carried[links] = bytes_by_node[node] * Bps / np.bincount(node, Bps, minlength=len(bytes_by_node))[node]
    return carried


def _count_flows(topology: Topology, ranks: Ints, members: Ints, switch_by_gpu: Ints, count: int) -> Floats:
    """Number of flows between each two switches."""
    per_node = topology.gpus_per_node
    if topology.relay:  # senders use the port of their node that is on the receiver's rail
        nodes = np.flatnonzero(members)
        flow_counts = np.zeros((count, count))
        for rail in range(per_node):
            senders = np.bincount(switch_by_gpu[nodes * per_node + rail], members[nodes], minlength=count)
            receivers = np.bincount(switch_by_gpu[ranks[ranks % per_node == rail]], minlength=count)
            flow_counts += np.outer(senders, receivers)
        return flow_counts
    members_by_switch = np.bincount(switch_by_gpu[ranks], minlength=count).astype(np.float64)
    flow_counts = np.outer(members_by_switch, members_by_switch)
    ordered = np.sort(ranks)
    for shift in range(1, per_node):  # pairs within a node are not on the fabric
        lower, higher = ordered[:-shift], ordered[shift:]
        is_same_node = lower // per_node == higher // per_node
        np.subtract.at(flow_counts, (switch_by_gpu[lower[is_same_node]], switch_by_gpu[higher[is_same_node]]), 1)
        np.subtract.at(flow_counts, (switch_by_gpu[higher[is_same_node]], switch_by_gpu[lower[is_same_node]]), 1)
    return flow_counts


def _bytes_by_link(topology: Topology, pairs: Floats, switches: Ints) -> Floats | None:
    """Bytes by link, if each flow between two switches carries 1; None: no path, or too large a fabric."""
    fabric = _fabric_vertices(topology)
    links = np.flatnonzero(np.isin(topology.source, fabric) & np.isin(topology.target, fabric))
    work = len(switches) * len(links)
    if work > _MOST_STEPS:
        return None
    source, target = (np.searchsorted(fabric, vertices[links]) for vertices in (topology.source, topology.target))
    out, into = (np.argsort(vertices, kind="stable") for vertices in (source, target))
    begins = [
        np.searchsorted(vertices[order], np.arange(len(fabric) + 1))
        for vertices, order in ((source, out), (target, into))
    ]
    on_link = np.zeros(len(links))
    compiled: Callable[..., Any] = fast(divide, work)
    if not compiled(begins[0], out, source, target, begins[1], into, np.searchsorted(fabric, switches), pairs, on_link):
        return None
    carried = np.zeros(topology.links)
    carried[links] = on_link
    return carried
