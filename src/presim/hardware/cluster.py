"""Nodes, fabrics, and the cluster made of them: placement of GPUs and bandwidth of links."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from presim.field_docs import doc
from presim.hardware.schema import GBPS, US, Gpu, Sourced, figure, pcie_bytes_per_s
from presim.units import GIB

Interconnect = Literal["nvswitch", "nvlink-mesh", "nvlink-pairs", "xgmi-mesh", "pcie"]


class Node(Sourced, frozen=True, kw_only=True):
    """One type of machine: how its GPUs reach each other, their host, and the network."""

    interconnect: Annotated[
        Interconnect,
        doc("How GPUs reach each other: all-to-all switch, links between some or all, bridged pairs, PCIe only."),
    ]
    default_fabric: Annotated[str, doc("Id of the fabric assumed when none is named.")]
    reduces_in_network: Annotated[bool, doc("Whether the switch can reduce and multicast (NVLink SHARP).")] = False
    links: Annotated[
        tuple[tuple[int, ...], ...],
        doc("Links between each pair of GPUs, where not all pairs are alike; empty: all alike."),
    ] = ()
    notes: Annotated[str, doc("What to know before trusting the figures.")] = ""

    gpus: Annotated[int, figure("gpus", 1, "GPUs of one host.", 1)]
    domain_gpus: Annotated[int, figure("domain_gpus", 1, "GPUs that one switched domain joins, across hosts.")] = 0
    pcie_generation: Annotated[int, figure("pcie_generation", 1, "Generation of the host's PCIe slots.", 3)]
    exchange_bytes_per_s: Annotated[
        float,
        figure(
            "exchange_GBps", GBPS, "A GPU's share, one way, while all exchange over PCIe; 0: not known, half its link."
        ),
    ] = 0.0
    nics: Annotated[int, figure("nics", 1, "Network ports for traffic between GPUs.")]
    sockets: Annotated[int, figure("sockets", 1, "CPU sockets.", 1)]
    cores: Annotated[int, figure("cores", 1, "CPU cores of all sockets.", 1)]
    host_factor: Annotated[
        float, figure("host_factor", 1.0, "Time of its CPU over presim's reference host; 0: not known, a typical one.")
    ] = 0.0
    host_memory_bytes: Annotated[int, figure("host_memory_GiB", GIB, "Memory of the host.", 1)]

    def __post_init__(self) -> None:
        """Refuse links that do not fit the GPUs."""
        square = len(self.links) in (0, self.gpus) and all(len(row) == self.gpus for row in self.links)
        if not square or any(row != column for row, column in zip(self.links, zip(*self.links))):
            raise ValueError(f"links must have a row for each of {self.gpus} GPUs and be the same both ways")

    @property
    def domain(self) -> int:
        """GPUs that reach each other without the network: one host's, or a rack's."""
        return max(self.domain_gpus, self.gpus)


class Fabric(Sourced, frozen=True, kw_only=True):
    """The network between nodes. How many ports a node has is the node's to say, unless the fabric says it."""

    kind: Annotated[Literal["infiniband", "roce", "ethernet", "efa", "tcpxo"], doc("Technology; ethernet has no RDMA.")]
    notes: Annotated[str, doc("What to know before trusting the figures.")] = ""
    port_bytes_per_s: Annotated[float, figure("port_GBps", GBPS, "One port, one direction (a 400 Gb/s port: 50).", 1)]
    latency_ns: Annotated[int, figure("latency_us", US, "A small message between GPUs of two nodes, one way.")]
    oversubscription: Annotated[
        float, figure("oversubscription", 1.0, "Ports' bandwidth over that of the links above them; 1: none.", 1)
    ]
    ports_per_gpu: Annotated[float, figure("ports_per_gpu", 1.0, "Ports for each GPU; 0: as the node has NICs.")] = 0.0
    ports_per_node: Annotated[int, figure("ports_per_node", 1, "Ports that a node's GPUs share; 0: not shared.")] = 0


class NodeGroup(msgspec.Struct, frozen=True):
    """Nodes of a cluster that are otherwise than the rest."""

    name: str
    first_node: int
    nodes: int
    gpu: Gpu
    node: Node
    fabric: Fabric


class Cluster(msgspec.Struct, frozen=True):
    """``nodes`` machines of one type on one fabric. Ranks fill node after node, as torchrun places them."""

    gpu: Gpu
    node: Node
    fabric: Fabric
    nodes: int
    gpus_per_node: int  # those used: may be fewer than the node has; as many as its domain where hosts share one
    nccl: dict[str, str] = {}  # NCCL's environment variables on this cluster, as in /etc/nccl.conf
    collectives: dict[str, Any] = {}  # constants of the model of collectives that were fitted to this cluster
    network: dict[str, Any] = {}  # how nodes are wired (presim.network.describe); empty: not said, nothing is shared
    groups: tuple[NodeGroup, ...] = ()  # nodes that are otherwise than ``gpu``, ``node`` and ``fabric`` say

    def group_of(self, rank: int) -> NodeGroup | None:
        """The group that a rank's node is in; None: it is as the rest."""
        node = rank // self.gpus_per_node
        return next((one for one in self.groups if one.first_node <= node < one.first_node + one.nodes), None)

    def as_seen_by(self, rank: int) -> Cluster:
        """The cluster as if all nodes were as the rank's own, without groups."""
        if not self.groups:
            return self
        own = self.group_of(rank) or self
        return msgspec.structs.replace(self, gpu=own.gpu, node=own.node, fabric=own.fabric, groups=())

    @property
    def world_size(self) -> int:
        """Number of GPUs, and of ranks."""
        return self.nodes * self.gpus_per_node

    @property
    def domain_size(self) -> int:
        """GPUs that reach each other without the network: of one host, or of the hosts that a job has in one rack.

        A job of several racks takes as many hosts of each, as block scheduling places it: 256 GPUs are 64 in each of
        four racks of 72, not 72, 72, 72 and 40.
        """
        most = max(self.node.domain // max(self.node.gpus, self.gpus_per_node), 1)
        fewest_racks = -(-self.nodes // most)
        even = (racks for racks in range(fewest_racks, 2 * fewest_racks) if self.nodes % racks == 0)
        hosts = -(-self.nodes // next(even, fewest_racks))
        return hosts * self.gpus_per_node

    @property
    def link_bytes_per_s(self) -> float:
        """Bandwidth of one GPU towards the others of its domain, all links together, one direction.

        Pairs joined by a bridge have it only towards each other; what leaves the pair goes over ``pcie_bytes_per_s``.
        """
        linked = self.node.interconnect != "pcie" and self.gpu.nvlink_bytes_per_s > 0
        return self.gpu.nvlink_bytes_per_s if linked else self.pcie_bytes_per_s

    @property
    def pcie_bytes_per_s(self) -> float:
        """Bandwidth of one GPU's PCIe link, one direction: the slower of card and slot."""
        generation = min(self.gpu.pcie_generation, self.node.pcie_generation)
        return pcie_bytes_per_s(generation, self.gpu.pcie_lanes)

    @property
    def network_bytes_per_s(self) -> float:
        """Bandwidth of one GPU into the network when all of its node use it, one direction, no oversubscription."""
        return self.network_bytes_per_s_of(range(self.gpus_per_node))

    def network_bytes_per_s_of(self, places: Sequence[int]) -> float:
        """Bandwidth of one GPU into the network when only these GPUs of its node (or domain) use it, one direction.

        They use the ports that they are nearest to. A GPU never gets more than its own link to the host carries.
        """
        ports = self.ports_of(places) or self.ports_per_gpu * len(places)
        host = max(self.pcie_bytes_per_s, self.gpu.c2c_bytes_per_s)
        return min(ports * self.fabric.port_bytes_per_s / len(places), host)

    @property
    def ports_per_gpu(self) -> float:
        """Network ports of a node over its GPUs. Below 1, several GPUs share a port."""
        if self.fabric.ports_per_node:
            return self.fabric.ports_per_node / self.gpus_per_node
        return self.fabric.ports_per_gpu or self.node.nics / self.node.gpus

    def ports_of(self, places: Sequence[int]) -> int:
        """How many shared ports these GPUs are nearest to; 0 where every GPU has ports of its own, or the node none."""
        return len({self.port(place) for place in places}) if 0 < self.ports_per_gpu < 1 else 0

    def port(self, rank: int) -> int:
        """The port nearest to a rank's GPU, where GPUs share ports; numbered over the cluster.

        A node's GPUs are assigned to its ports in order: with eight GPUs and four ports, GPUs 0 and 1 share port 0.
        """
        node, place = divmod(rank, self.gpus_per_node)
        per_gpu = self.ports_per_gpu + 1e-9  # a third of a port for each of three GPUs is one port
        return node * math.ceil(self.gpus_per_node * self.ports_per_gpu - 1e-9) + int(place * per_gpu)

    def domain(self, rank: int) -> int:
        """The switched domain that a rank is in: its node, or its rack."""
        return rank // self.domain_size
