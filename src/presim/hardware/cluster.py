"""Nodes, fabrics and clusters: placement of GPUs and bandwidth of links."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from presim.hardware.gpu_schema import GBPS, US, Gpu, Sourced, figure, pcie_bytes_per_s
from presim.system.files.field_bounds import Count
from presim.system.files.field_docs import doc
from presim.units import GIB

Interconnect = Literal[
    "nvswitch", "nvlink-mesh", "nvlink-pairs", "xgmi-mesh", "pcie", "ports-switch", "ports-mesh", "ports-torus"
]


class Node(Sourced, frozen=True, kw_only=True):
    """One type of machine: links between its GPUs, its host, and its network ports."""

    interconnect: Annotated[
        Interconnect,
        doc(
            "Links between GPUs: all-to-all switch, links between some or all, bridged pairs, PCIe only; of "
            "accelerators: ports to a switch, to all others, or to neighbours in a torus."
        ),
    ]
    default_fabric: Annotated[str, doc("Id of the default fabric.")]
    reduces_in_network: Annotated[bool, doc("Whether the switch can reduce and multicast (NVLink SHARP).")] = False
    links: Annotated[
        tuple[tuple[Count, ...], ...],
        doc("Number of links between each pair of GPUs, if pairs differ; empty: all pairs are equal."),
    ] = ()
    notes: Annotated[str, doc("Limitations of the figures.")] = ""

    gpus: Annotated[int, figure("gpus", 1, "GPUs of one host.", 1)]
    domain_gpus: Annotated[int, figure("domain_gpus", 1, "GPUs of one NVLink domain across hosts.")] = 0
    pcie_generation: Annotated[int, figure("pcie_generation", 1, "Generation of the host's PCIe slots.", 3)]
    exchange_bytes_per_s: Annotated[
        float,
        figure(
            "exchange_GBps",
            GBPS,
            "Bandwidth per GPU, one way, while all exchange over PCIe; 0: unknown (half the link).",
        ),
    ] = 0.0
    nics: Annotated[int, figure("nics", 1, "Network ports for traffic between GPUs.")]
    sockets: Annotated[int, figure("sockets", 1, "CPU sockets.", 1)]
    cores: Annotated[int, figure("cores", 1, "CPU cores of all sockets.", 1)]
    host_factor: Annotated[
        float,
        figure("host_factor", 1.0, "CPU time relative to presim's reference host; 0: unknown (a typical server)."),
    ] = 0.0
    host_memory_bytes: Annotated[int, figure("host_memory_GiB", GIB, "Memory of the host.", 1)]

    def __post_init__(self) -> None:
        """Check that the links fit the GPUs."""
        square = len(self.links) in (0, self.gpus) and all(len(row) == self.gpus for row in self.links)
        if not square or any(row != column for row, column in zip(self.links, zip(*self.links))):
            raise ValueError(f"links must have a row for each of {self.gpus} GPUs and be the same both ways")

    @property
    def domain(self) -> int:
        """Number of GPUs that reach each other without the network: those of a host or of a rack."""
        return max(self.domain_gpus, self.gpus)


class Fabric(Sourced, frozen=True, kw_only=True):
    """The network between nodes. It may override the node's number of ports."""

    kind: Annotated[
        Literal["infiniband", "roce", "ethernet", "efa", "tcpxo", "slingshot", "omnipath"],
        doc("Technology; ethernet is without RDMA."),
    ]
    notes: Annotated[str, doc("What to know before trusting the figures.")] = ""
    port_bytes_per_s: Annotated[float, figure("port_GBps", GBPS, "One port, one direction (a 400 Gb/s port: 50).", 1)]
    latency_ns: Annotated[int, figure("latency_us", US, "Latency of a small message between GPUs of two nodes.")]
    oversubscription: Annotated[
        float,
        figure(
            "oversubscription",
            1.0,
            "Bandwidth of all ports over that of the links above them; 1: not oversubscribed.",
            1,
        ),
    ]
    reduces_in_network: Annotated[
        bool, doc("Whether the switches between nodes reduce (SHARP). NCCL uses it with NCCL_COLLNET_ENABLE=1.")
    ] = False
    port_share: Annotated[
        float,
        figure(
            "port_share",
            1.0,
            "What collectives reach of a port, over the usual for its technology; 0: the usual.",
        ),
    ] = 0.0
    port_share_spread: Annotated[
        float, figure("port_share_spread", 1.0, "Relative spread of port_share among clusters; widens intervals.")
    ] = 0.0
    ports_per_gpu: Annotated[float, figure("ports_per_gpu", 1.0, "Ports per GPU; 0: those of the node.")] = 0.0
    ports_per_node: Annotated[
        int, figure("ports_per_node", 1, "Ports of a node that its GPUs share; 0: not shared.")
    ] = 0


class NodeGroup(msgspec.Struct, frozen=True):
    """A group of nodes that differ from the rest of the cluster."""

    name: str
    first_node: Count
    nodes: Count
    gpu: Gpu
    node: Node
    fabric: Fabric


class Cluster(msgspec.Struct, frozen=True):
    """``nodes`` machines of one type on one fabric. Ranks fill node after node, as with torchrun."""

    gpu: Gpu
    node: Node
    fabric: Fabric
    nodes: Count
    gpus_per_node: (
        Count  # GPUs used per node; may be fewer than the node has, or a whole rack if hosts share an NVLink domain
    )
    nccl: dict[str, str] = {}  # NCCL's environment variables on this cluster, as in /etc/nccl.conf
    collectives: dict[str, Any] = {}  # constants of the collective model, fitted to this cluster
    network: dict[
        str, Any
    ] = {}  # network topology (presim.hardware.network.build_topology); empty: unknown, no links are shared
    groups: tuple[NodeGroup, ...] = ()  # nodes that are otherwise than ``gpu``, ``node`` and ``fabric`` say
    neighbours: tuple[NodeGroup, ...] = ()  # of a view: the rest, then the groups, for the network between all nodes

    def group_of(self, rank: int) -> NodeGroup | None:
        """The group of a rank's node; None if it is in no group."""
        node = rank // self.gpus_per_node
        return next((group for group in self.groups if group.first_node <= node < group.first_node + group.nodes), None)

    def as_seen_by(self, rank: int) -> Cluster:
        """The cluster as if all nodes were like the rank's own, without groups."""
        if not self.groups:
            return self
        part = self.group_of(rank) or self
        return msgspec.structs.replace(
            self, gpu=part.gpu, node=part.node, fabric=part.fabric, groups=(), neighbours=self.all_parts
        )

    @property
    def all_parts(self) -> tuple[NodeGroup, ...]:
        """The nodes outside of groups, then the groups; a group overrides the first part on its own nodes."""
        base_group = NodeGroup("", 0, self.nodes, self.gpu, self.node, self.fabric)
        return self.neighbours or (base_group, *self.groups)

    def views(self) -> tuple[Cluster, ...]:
        """The cluster as a rank sees it: one view for the nodes outside of groups, if any, and one per group."""
        firsts = [group.first_node for group in self.groups]
        claimed = {node for group in self.groups for node in range(group.first_node, group.first_node + group.nodes)}
        first_ungrouped_node = next((node for node in range(self.nodes) if node not in claimed), None)
        nodes = firsts if first_ungrouped_node is None else [first_ungrouped_node, *firsts]
        return tuple(self.as_seen_by(node * self.gpus_per_node) for node in nodes)

    def gpus_by_kind(self) -> dict[str, int]:
        """Number of GPUs of each kind, by id; also of a view."""
        base_group, *groups = self.all_parts
        num_ungrouped = base_group.nodes - sum(group.nodes for group in groups)
        counts = {base_group.gpu.id: num_ungrouped * self.gpus_per_node}
        for group in groups:
            counts[group.gpu.id] = counts.get(group.gpu.id, 0) + group.nodes * self.gpus_per_node
        return {gpu: count for gpu, count in counts.items() if count}

    @property
    def world_size(self) -> int:
        """Number of GPUs, which is the number of ranks."""
        return self.nodes * self.gpus_per_node

    @property
    def domain_size(self) -> int:
        """Number of GPUs that reach each other without the network: of one host, or of the job's hosts in one rack.

        A job of several racks uses the same number of hosts in each, as with block scheduling: 256 GPUs are 64 in each
        of four racks of 72, not 72, 72, 72 and 40.
        """
        max_hosts_per_rack = max(self.node.domain // max(self.node.gpus, self.gpus_per_node), 1)
        fewest_racks = -(-self.nodes // max_hosts_per_rack)
        even = (racks for racks in range(fewest_racks, 2 * fewest_racks) if self.nodes % racks == 0)
        hosts = -(-self.nodes // next(even, fewest_racks))
        return hosts * self.gpus_per_node

    @property
    def link_bytes_per_s(self) -> float:
        """Bandwidth of one GPU to the others of its domain over all its links, one direction.

        Bridged pairs have it only between each other; other traffic uses PCIe (``pcie_bytes_per_s``).
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
        """Bandwidth of one GPU into the network while all GPUs of its node use it, one way, not oversubscribed."""
        return self.network_bytes_per_s_of(range(self.gpus_per_node))

    def network_bytes_per_s_of(self, places: Sequence[int]) -> float:
        """Bandwidth of one GPU into the network while only these GPUs of its node (or domain) use it, one direction.

        They use their nearest ports. The GPU's link to its host limits the bandwidth.
        """
        ports = self.ports_of(places) or self.ports_per_gpu * len(places)
        host = max(self.pcie_bytes_per_s, self.gpu.c2c_bytes_per_s)
        return min(ports * self.fabric.port_bytes_per_s / len(places), host)

    @property
    def ports_per_gpu(self) -> float:
        """Number of network ports per GPU. Below 1, several GPUs share a port."""
        if self.fabric.ports_per_node:
            return self.fabric.ports_per_node / self.gpus_per_node
        return self.fabric.ports_per_gpu or self.node.nics / self.node.gpus

    def ports_of(self, gpus: Sequence[int]) -> int:
        """Number of shared ports nearest to these GPUs; 0 if each GPU has its own ports, or the node has none."""
        return len({self.port(gpu) for gpu in gpus}) if 0 < self.ports_per_gpu < 1 else 0

    def port(self, rank: int) -> int:
        """The port nearest to a rank's GPU, if GPUs share ports; ports are numbered over the cluster.

        A node's GPUs are assigned to its ports in order: with eight GPUs and four ports, GPUs 0 and 1 share port 0.
        """
        node, local_index = divmod(rank, self.gpus_per_node)
        per_gpu = self.ports_per_gpu + 1e-9  # a third of a port for each of three GPUs is one port
        return node * math.ceil(self.gpus_per_node * self.ports_per_gpu - 1e-9) + int(local_index * per_gpu)

    def domain(self, rank: int) -> int:
        """Index of the NVLink domain of a rank: its node, or its rack."""
        return rank // self.domain_size
