"""Placement of a group's ranks on a cluster and the links between them: the input of collective models."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools

from presim.cost.collectives.nccl_environment import Tuning
from presim.errors import InputError
from presim.hardware import Cluster
from presim.hardware.constants import value
from presim.hardware.network.mesh_rings import count_rings
from presim.trace.collective import COLLECTIVE_KINDS, Collective, Splits
from presim.trace.schema import Group


@dataclasses.dataclass(frozen=True)
class GroupPlacement:
    """Placement of a group. A node here is an NVLink domain: a host, or a rack that NVLink connects."""

    ranks: int
    nodes: int
    per_node: int  # ranks on the fullest node
    has_known_ranks: bool = True  # False: the trace lacks the group's ranks, so consecutive ranks are assumed
    places: tuple[int, ...] = dataclasses.field(default=(), compare=False)  # the group's GPUs on the fullest node


@dataclasses.dataclass(frozen=True)
class Links:
    """Bandwidths in bytes/s, one direction."""

    generation: str  # of the GPU
    nvlink: bool
    switched: bool  # the switch reduces and multicasts
    link_Bps: float  # one GPU to the others of its node, over all its links
    mesh: int  # number of GPUs connected directly rather than by a switch; 0: a switch or PCIe
    network_Bps: float  # one of the group's GPUs into the network, if no other group uses its node's ports
    fabric: str  # infiniband, roce, efa, tcpxo, ethernet
    hop_s: float  # latency of one small message between GPUs of two nodes
    memory_Bps: float  # of one GPU
    rings: float = 0.0  # in a mesh with unequal links: number of rings through the group's GPUs
    rings_of_all: int = 0  # the same through all GPUs of the node
    exchange_Bps: float = 0.0  # over PCIe: bandwidth per GPU while all GPUs exchange; 0: unknown
    shared_ports: int = 0  # ports that the group uses on a node and shares with other GPUs; 0: ports are not shared
    port_Bps: float = 0.0  # bandwidth of one such port
    port_share: float = 1.0  # what collectives reach of a port, over the usual for the fabric's technology
    torus: int = 0  # dimensions of the torus of a node's links; 0: no torus
    reduces: bool = False  # the switches between nodes reduce, and NCCL may use that


ACCELERATOR = "accelerator"  # the generation of all accelerators that are no GPU, for constants and rules
_DETOUR = value("nccl.detour_rings")
_SOCKET_HOP_S = value("nccl.socket_hop_s")
_SOCKET_BPS = value("nccl.socket_GBps") * 1e9
_SHARED_MEMORY = value("nccl.host_memory_share")


def links_of(cluster: Cluster, layout: GroupPlacement, tuning: Tuning | None = None) -> Links:
    """The links that a group with this layout uses, within NCCL's limits (``tuning``).

    NVLink bridges connect GPUs 0 and 1, 2 and 3, ... of a node; other groups use PCIe. A group uses the network ports
    nearest to its GPUs. The engine divides ports among groups that use them at the same time. Oversubscription of the
    fabric applies to all traffic between nodes, because the switch of a node is not known.
    """
    interconnect = cluster.node.interconnect
    linked = interconnect != "pcie" and cluster.gpu.nvlink_bytes_per_s > 0
    linked = linked and (interconnect != "nvlink-pairs" or _is_bridged(layout))
    tuning = tuning or Tuning()
    linked = linked and tuning.peer_to_peer
    pcie_Bps = cluster.pcie_bytes_per_s * (1.0 if tuning.pcie_peer_to_peer else _SHARED_MEMORY)
    mesh = cluster.node.links if linked else ()
    places = layout.places or tuple(range(layout.per_node))
    return Links(
        generation=cluster.gpu.architecture if cluster.gpu.is_gpu else ACCELERATOR,
        nvlink=linked,
        switched=linked and cluster.node.reduces_in_network,
        link_Bps=cluster.link_bytes_per_s if linked else pcie_Bps,
        mesh=cluster.node.gpus if linked and interconnect.endswith("mesh") else 0,
        network_Bps=cluster.network_bytes_per_s_of(places)
        / cluster.fabric.oversubscription
        * _port_part(cluster, tuning),
        fabric=cluster.fabric.kind if tuning.rdma else "ethernet",
        hop_s=max(cluster.fabric.latency_ns * 1e-9, 0.0 if tuning.rdma else _SOCKET_HOP_S),
        memory_Bps=cluster.gpu.memory_bytes_per_s,
        rings=(count_rings(mesh, layout.places) or _DETOUR) if mesh else 0.0,
        rings_of_all=count_rings(mesh, tuple(range(len(mesh)))),
        torus=max(cluster.gpu.link_ports // 2, 1) if linked and interconnect == "ports-torus" else 0,
        exchange_Bps=cluster.node.exchange_bytes_per_s if tuning.pcie_peer_to_peer and not linked else 0.0,
        shared_ports=cluster.ports_of(places),
        port_Bps=cluster.fabric.port_bytes_per_s / cluster.fabric.oversubscription,
        port_share=cluster.fabric.port_share or 1.0,
        reduces=cluster.fabric.reduces_in_network and tuning.in_network and tuning.rdma and not cluster.network,
    )


def _port_part(cluster: Cluster, tuning: Tuning) -> float:
    """What TCP sockets carry of a port of an RDMA fabric, if it is used without RDMA."""
    if tuning.rdma or cluster.fabric.kind == "ethernet":
        return 1.0
    return min(1.0, tuning.sockets * _SOCKET_BPS / cluster.fabric.port_bytes_per_s)


def _is_bridged(layout: GroupPlacement) -> bool:
    """Whether the members on a node are a bridged pair. Unknown members count as a pair."""
    return layout.per_node <= 2 and len({gpu // 2 for gpu in layout.places}) <= 1


def check_kind(collective: Collective) -> None:
    """Raise an `InputError` for a kind of collective that no model supports."""
    if collective.kind not in COLLECTIVE_KINDS:
        kind_names = ", ".join(COLLECTIVE_KINDS)
        raise InputError(f"{collective.kind!r} is not a known kind of collective ({kind_names}); correct the trace")


def layout_of(collective: Collective, group: Group, cluster: Cluster) -> GroupPlacement:
    """Placement of the participants: the whole group, or the two ends of a message."""
    ranks = group.ranks
    has_known_ranks = len(ranks) == group.size or group.size == 1
    if not has_known_ranks:
        ranks = tuple(range(group.size))
    if collective.kind in ("send", "recv", "send_recv") and len(ranks) > 2:
        return _message_layout(ranks, collective.peer, cluster, has_known_ranks)
    nodes, places = _domains_and_places(ranks, cluster.domain_size)
    return GroupPlacement(len(ranks), nodes, max(len(places), 1), has_known_ranks, places)


@functools.lru_cache(maxsize=512)  # saves 2 ms per collective for groups of 16,384 ranks
def _domains_and_places(ranks: tuple[int, ...], domain_size: int) -> tuple[int, tuple[int, ...]]:
    """Number of domains that the ranks are on, and their places in the fullest domain."""
    domains = collections.Counter(rank // domain_size for rank in ranks)
    fullest = max(sorted(domains), key=lambda domain: domains[domain], default=0)
    return max(len(domains), 1), tuple(rank % domain_size for rank in ranks if rank // domain_size == fullest)


def bytes_within_and_between_nodes(splits: Splits, group: Group, cluster: Cluster) -> tuple[float, float]:
    """Bytes between a rank and (ranks of its node, ranks of other nodes), each in the busier direction.

    A rank has its own links into and out of the switch, so its sums over all peers limit it. The engine takes the time
    of the slowest rank, since those that send to it wait for it.
    """
    ranks = group.ranks if len(group.ranks) == group.size else tuple(range(group.size))
    home = cluster.domain(ranks[splits.own])
    is_near = [cluster.domain(rank) == home for rank in ranks]
    totals = {True: [0, 0], False: [0, 0]}
    for direction, parts in enumerate((splits.sent, splits.received)):
        for peer, (is_near_peer, size) in enumerate(zip(is_near, parts, strict=True)):
            totals[is_near_peer][direction] += size if peer != splits.own else 0
    return float(max(totals[True])), float(max(totals[False]))


def _message_layout(ranks: tuple[int, ...], peer: int, cluster: Cluster, has_known_ranks: bool) -> GroupPlacement:
    """Placement of the two ends of a message.

    The trace records one end. The other is assumed to be its neighbour, as in a pipeline or a ring. If the end is not
    recorded either, the message crosses nodes if any neighbours of the group are on different nodes.
    """
    pairs = [(ranks[peer - 1], ranks[peer])] if 0 <= peer < len(ranks) else list(itertools.pairwise(ranks))
    crosses_nodes = any(cluster.domain(rank) != cluster.domain(next_rank) for rank, next_rank in pairs)
    places = tuple(rank % cluster.domain_size for rank in pairs[0])
    return GroupPlacement(
        2,
        2 if crosses_nodes else 1,
        1 if crosses_nodes else 2,
        has_known_ranks,
        places[:1] if crosses_nodes else places,
    )
