"""Load of all-to-alls of very many ranks on a fabric, from the traffic between the switches that nodes attach to.

All flows between two switches are counted together: 16,384 ranks are 268 million flows, and 16,256 pairs of 128 leaf
switches. They divide evenly where shortest paths do, as hashes of so many flows. The time is that of the busiest link,
as all flows go on in step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from presim.network.kernels import fast
from presim.network.path_kernels import divide
from presim.network.routing import routes
from presim.network.topology import Floats, Ints, Topology

_MOST_STEPS = 500_000_000  # receiving switches times links: some seconds


@dataclasses.dataclass(frozen=True)
class Spread:
    """Load of concurrent all-to-alls of groups, for 1 byte from each rank to every other rank."""

    carried: Floats  # bytes by link of the fabric
    ports_s: Floats  # by group, time of the busiest node's ports for its traffic without the other groups
    seconds: float  # of all groups, on the busiest link or the busiest node's ports


def all_to_alls(topology: Topology, groups: Sequence[tuple[int, ...]]) -> Spread | None:
    """The load of all groups; None: the network has no switches between nodes, or too many."""
    per_node = topology.gpus_per_node
    if topology.transit or not per_node or topology.gpus <= per_node:
        return None
    switch_by_gpu, switches = _switches_of_gpus(topology)
    port_Bps = _port_Bps(topology)
    pairs = np.zeros((len(switches), len(switches)))
    ports = np.zeros((len(groups), len(port_Bps)))
    for group_index, group in enumerate(groups):
        ranks = np.array(group, np.int64)
        members = np.bincount(ranks // per_node, minlength=len(port_Bps))
        pairs += _count_flows(topology, ranks, members, switch_by_gpu, len(switches))
        ports[group_index] = members * (len(ranks) - members) / port_Bps
    np.fill_diagonal(pairs, 0.0)
    carried = _bytes_by_link(topology, pairs, switches)
    if carried is None:
        return None
    busiest = max(float((carried / topology.bandwidth_Bps).max(initial=0.0)), float(ports.sum(axis=0).max()))
    return Spread(carried, ports.max(axis=1), busiest)


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


def _port_Bps(topology: Topology) -> Floats:
    """By node, the bandwidth of its ports into the fabric."""
    leaves = (
        np.isin(topology.target, _fabric_vertices(topology))
        & np.array([".nic" in name for name in topology.names])[topology.source]
    )
    nodes = [int(topology.names[source].removeprefix("node").split(".")[0]) for source in topology.source[leaves]]
    count = topology.gpus // topology.gpus_per_node
    return np.bincount(nodes, topology.bandwidth_Bps[leaves], minlength=count).astype(np.float64)


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
