"""Where a group's ranks sit, and the wires between them: all that a collective model asks of the cluster."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools

from presim.cost.collectives.environment import Tuning
from presim.cost.collectives.rings import count_rings
from presim.errors import InputError
from presim.hardware import Cluster
from presim.trace.collective import COLLECTIVE_KINDS, Collective, Splits
from presim.trace.schema import Group


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a group lies on the cluster. A node here is a switched domain: a host, or a rack that NVLink joins."""

    ranks: int
    nodes: int
    per_node: int  # ranks on the fullest node
    known: bool = True  # False: the trace lacks the group's ranks, so consecutive ranks are assumed
    places: tuple[int, ...] = dataclasses.field(default=(), compare=False)  # GPUs of the fullest node that take part


@dataclasses.dataclass(frozen=True)
class Links:
    """Bandwidths in bytes/s, one direction."""

    generation: str  # of the GPU
    nvlink: bool
    switched: bool  # the switch reduces and multicasts
    link_Bps: float  # one GPU to the others of its node, all links together
    mesh: int  # GPUs joined by links of their own rather than by a switch; 0: a switch or PCIe
    network_Bps: float  # one of the group's GPUs into the network, with no other group on its node's ports
    fabric: str  # infiniband, roce, efa, tcpxo, ethernet
    hop_s: float  # one small message between GPUs of two nodes
    memory_Bps: float  # of one GPU
    rings: float = 0.0  # of a mesh whose links are not all alike: how many rings fit through the group's GPUs
    rings_of_all: int = 0  # the same through all GPUs of the node
    exchange_Bps: float = 0.0  # over PCIe: what sockets or switches leave a GPU while all exchange; 0: not known
    shared_ports: int = 0  # ports that the group uses on a node and other GPUs may use too; 0: each GPU has its own
    port_Bps: float = 0.0  # one such port


_DETOUR = 1.65  # rings where one has to go through a GPU that takes no part: five of eight V100 (vTrain f8dda84)
_SOCKET_HOP_S = 15e-6  # a small message over sockets. A guess
_SHARED_MEMORY = 0.5  # of PCIe's bandwidth where GPUs meet in the host's memory. A guess


def links_of(cluster: Cluster, layout: Layout, tuning: Tuning | None = None) -> Links:
    """The wires that a group with this layout uses, as far as NCCL is allowed to.

    Bridges join GPUs 0 and 1, 2 and 3, ... of a node: any other group goes over PCIe. A group uses the network ports
    nearest to its GPUs; the engine shares them with other groups that use them at the same time. An oversubscribed
    fabric counts against all that leaves a node, because which switch a node hangs on is not known.
    """
    interconnect = cluster.node.interconnect
    linked = interconnect != "pcie" and cluster.gpu.nvlink_bytes_per_s > 0
    linked = linked and (interconnect != "nvlink-pairs" or _is_bridged(layout))
    tuning = tuning or Tuning()
    linked = linked and tuning.peer_to_peer
    pcie_Bps = cluster.pcie_bytes_per_s * (1.0 if tuning.peer_to_peer else _SHARED_MEMORY)
    mesh = cluster.node.links if linked else ()
    places = layout.places or tuple(range(layout.per_node))
    return Links(
        generation=cluster.gpu.architecture,
        nvlink=linked,
        switched=linked and cluster.node.reduces_in_network,
        link_Bps=cluster.link_bytes_per_s if linked else pcie_Bps,
        mesh=cluster.node.gpus if linked and interconnect.endswith("mesh") else 0,
        network_Bps=cluster.network_bytes_per_s_of(places) / cluster.fabric.oversubscription,
        fabric=cluster.fabric.kind if tuning.rdma else "ethernet",
        hop_s=max(cluster.fabric.latency_ns * 1e-9, 0.0 if tuning.rdma else _SOCKET_HOP_S),
        memory_Bps=cluster.gpu.memory_bytes_per_s,
        rings=(count_rings(mesh, layout.places) or _DETOUR) if mesh else 0.0,
        rings_of_all=count_rings(mesh, tuple(range(len(mesh)))),
        exchange_Bps=cluster.node.exchange_bytes_per_s if tuning.peer_to_peer and not linked else 0.0,
        shared_ports=cluster.ports_of(places),
        port_Bps=cluster.fabric.port_bytes_per_s / cluster.fabric.oversubscription,
    )


def _is_bridged(layout: Layout) -> bool:
    """Whether the members on a node are a bridged pair, if the members are known."""
    return layout.per_node <= 2 and len({place // 2 for place in layout.places}) <= 1


def check_kind(collective: Collective) -> None:
    """Raise if a trace has a collective of a kind that no model supports."""
    if collective.kind not in COLLECTIVE_KINDS:
        known = ", ".join(COLLECTIVE_KINDS)
        raise InputError(f"{collective.kind!r} is no kind of collective: known are {known}; correct the trace")


def layout_of(collective: Collective, group: Group, cluster: Cluster) -> Layout:
    """Placement of those that take part: the whole group, or the two ends of a message."""
    ranks = group.ranks
    known = len(ranks) == group.size or group.size == 1
    if not known:
        ranks = tuple(range(group.size))
    if collective.kind in ("send", "recv", "send_recv") and len(ranks) > 2:
        return _message(ranks, collective.peer, cluster, known)
    nodes, places = _spread(ranks, cluster.domain_size)
    return Layout(len(ranks), nodes, max(len(places), 1), known, places)


@functools.lru_cache(maxsize=512)  # groups of 16,384 ranks come once per collective: 2 ms each without
def _spread(ranks: tuple[int, ...], domain_size: int) -> tuple[int, tuple[int, ...]]:
    """How many domains the ranks are on, and which places of the fullest one they take."""
    domains = collections.Counter(rank // domain_size for rank in ranks)
    fullest = max(sorted(domains), key=lambda domain: domains[domain], default=0)
    return max(len(domains), 1), tuple(rank % domain_size for rank in ranks if rank // domain_size == fullest)


def exchanged(splits: Splits, group: Group, cluster: Cluster) -> tuple[float, float]:
    """Bytes between a rank and those of its own node, and those of others: each the busier of both directions.

    Every rank has wires of its own into the switch and out of it; so its sums over all peers limit it, however they are
    dealt out. The slowest of the ranks that meet sets the time for all: those that send to it wait for it.
    """
    ranks = group.ranks if len(group.ranks) == group.size else tuple(range(group.size))
    home = cluster.domain(ranks[splits.own])
    is_near = [cluster.domain(rank) == home for rank in ranks]
    totals = {True: [0, 0], False: [0, 0]}
    for direction, parts in enumerate((splits.sent, splits.received)):
        for peer, (near, size) in enumerate(zip(is_near, parts, strict=True)):
            totals[near][direction] += size if peer != splits.own else 0
    return float(max(totals[True])), float(max(totals[False]))


def _message(ranks: tuple[int, ...], peer: int, cluster: Cluster, known: bool) -> Layout:
    """Two ends of which the trace names one: the other is the neighbour, as in a pipeline or a ring.

    The message counts as leaving the node where any neighbours of the group are on different nodes.
    """
    pairs = [(ranks[peer - 1], ranks[peer])] if 0 <= peer < len(ranks) else list(itertools.pairwise(ranks))
    apart = any(cluster.domain(one) != cluster.domain(other) for one, other in pairs)
    places = tuple(rank % cluster.domain_size for rank in pairs[0])
    return Layout(2, 2 if apart else 1, 1 if apart else 2, known, places[:1] if apart else places)
