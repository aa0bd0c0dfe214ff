"""Build a topology from the nodes and the fabric that a cluster file describes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from presim.errors import InputError
from presim.hardware import Cluster
from presim.hardware.cluster import NodeGroup
from presim.hardware.network.fabrics import FABRICS
from presim.hardware.network.failures import fail, failure_of
from presim.hardware.network.nodes import add_node
from presim.hardware.network.topology import Builder, Topology
from presim.system.files import FormatError, convert
from presim.system.files.field_bounds import Count, GBps, Microseconds, PositiveCount, PositiveGBps, Ratio, bounds
from presim.units import quantities


class Extra(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"source": "from", "target": "to"}):
    """An additional bidirectional link, or a replacement for a link of the fabric."""

    source: str
    target: str
    GBps: PositiveGBps
    latency_us: Microseconds = 0.0


class Description(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The ``[network]`` table of a cluster file; missing figures come from its GPU, node type and fabric."""

    fabric: Literal["fat-tree", "rail", "dragonfly", "torus", "ring", "mesh"] = "fat-tree"
    node: Literal["", "nvswitch", "nvlink-mesh", "nvlink-pairs", "pcie"] = ""  # empty: from the cluster's node type
    levels: Count = 2  # levels of switches in a tree
    leaf_nodes: PositiveCount = 16  # nodes per leaf switch (also per rail); dragonfly: per router
    pod_leaves: PositiveCount = 16  # leaf switches per pod, with three levels; dragonfly: routers per group
    oversubscription: Ratio = 1.0  # of leaf switches: downlink over uplink bandwidth
    core_oversubscription: Ratio = 1.0  # of pods, with three levels
    spines: Count = 0  # uplinks per leaf, for ecmp; 0: as many as downlinks
    routing: Literal["adaptive", "ecmp"] = "adaptive"
    seed: Annotated[int, bounds(quantities.SEED)] = 0  # seed of ecmp's path selection
    dims: tuple[Count, ...] = ()  # dimensions of a torus, in nodes
    nics: Ratio = 0.0  # NICs per node
    nic_GBps: GBps = 0.0
    nvlink_GBps: GBps = 0.0
    pcie_GBps: GBps = 0.0
    pcie_switch_gpus: Count = 0  # GPUs behind one PCIe switch, whose uplink they share; 0: no switches
    socket_GBps: GBps = 0.0  # between the PCIe roots of a node's sockets; 0: not a limit
    nvlink_latency_us: Microseconds = 0.5
    switch_latency_us: Microseconds = 0.5
    link_latency_us: Microseconds = 0.3
    relay: bool = True  # rails: a GPU sends through the one of its node on the receiver's rail (PXN)
    links: tuple[Extra, ...] = ()  # additional links; an existing link gets the new bandwidth
    failed: tuple[str, ...] = ()  # failures, in the format of `presim.hardware.network.failures.failure_of`
    factors: dict[str, Ratio] = {}  # vertex name -> factor of the bandwidth of all its links: 0.5 for a slow switch


@dataclasses.dataclass(frozen=True)
class TopologyPlan:
    """A description with all figures filled in, in bytes/s and ns."""

    nodes: int
    per_node: int
    nics: int
    nic_Bps: float
    nvlink_Bps: float
    pcie_Bps: float
    node: str
    description: Description
    links: tuple[tuple[int, ...], ...] = ()  # of an NVLink mesh whose pairs differ: number of links by pair
    sockets: int = 1
    groups: tuple[tuple[range, TopologyPlan], ...] = ()  # nodes that are otherwise

    def of(self, node: int) -> TopologyPlan:
        """The plan of one node."""
        return next((plan for nodes, plan in self.groups if node in nodes), self)

    @property
    def hop_ns(self) -> float:
        """Latency from port to port through one switch."""
        return (self.description.switch_latency_us + self.description.link_latency_us) * 1e3


def read_description(table: Mapping[str, Any]) -> Description:
    """Read and check the table.

    Raises:
        InputError: a key is unknown or a figure is invalid.
    """
    try:
        description = convert(dict(table), Description)
    except FormatError as error:
        raise InputError(f"the cluster's [network] cannot be used: {error}; see docs/reference/network.md") from error
    if description.levels not in (1, 2, 3):
        raise InputError(
            f"[network] levels = {description.levels}: trees have 1, 2 or 3 levels of switches; choose one"
        )
    _check_effect(table, description)
    for name in ("oversubscription", "core_oversubscription"):
        if not getattr(description, name) >= 1:
            raise InputError(
                f"[network] {name} = {getattr(description, name):g}: it must be at least 1 (1: none; larger: less "
                "uplink bandwidth); correct it"
            )
    return description


# Fabrics in which a key has an effect. All other keys have one in each fabric.
TREES = ("fat-tree", "rail")
FABRICS_OF_KEYS: dict[str, tuple[str, ...]] = {
    "levels": TREES,
    "leaf_nodes": (*TREES, "dragonfly"),
    "pod_leaves": (*TREES, "dragonfly"),
    "oversubscription": (*TREES, "dragonfly"),
    "core_oversubscription": TREES,
    "spines": TREES,
    "dims": ("torus",),
    "relay": ("rail",),
}
_THREE_LEVELS = ("pod_leaves", "core_oversubscription")  # keys that trees of fewer levels do not use
_TWO_LEVELS = ("leaf_nodes", "oversubscription")


def _check_effect(table: Mapping[str, Any], description: Description) -> None:
    """Refuse keys that the fabric does not have."""
    for name, fabrics in FABRICS_OF_KEYS.items():
        if name in table and description.fabric not in fabrics:
            raise InputError(
                f"[network] {name} has no effect in a fabric {description.fabric!r} (only in {', '.join(fabrics)}); "
                "leave it out, or change the fabric"
            )
    if description.fabric not in TREES:
        return
    for names, levels in ((_THREE_LEVELS, 3), (_TWO_LEVELS, 2)):
        for name in names:
            if name in table and description.levels < levels:
                raise InputError(
                    f"[network] {name} has no effect in a tree of {description.levels} level"
                    f"{'s' if description.levels > 1 else ''}; set levels = {levels}, or leave it out"
                )


def topology_of(cluster: Cluster, table: Mapping[str, Any]) -> Topology:
    """Build the topology of a cluster with this ``[network]`` table (`plan_of`).

    Raises:
        InputError: the description is inconsistent or disconnected, or groups differ in GPUs of a domain or ports.
    """
    return build(plan_of(cluster, table))


def plan_of(cluster: Cluster, table: Mapping[str, Any]) -> TopologyPlan:
    """The figures of a cluster's network with this ``[network]`` table.

    Groups of nodes have their own links and ports; switches are as the ports of the rest need them.

    Raises:
        InputError: the description is inconsistent or disconnected, or groups differ in GPUs of a domain or ports.
    """
    description = read_description(table)
    parts = cluster.all_parts
    plans = [_plan(_uniform(cluster, part), description) for part in parts]
    for part, plan in zip(parts, plans):
        if (plan.per_node, plan.nics) != (plans[0].per_node, plans[0].nics):
            raise InputError(
                f"group {part.name!r} has {plan.per_node} GPUs and {plan.nics} ports in a node or rack, and the rest "
                f"has {plans[0].per_node} and {plans[0].nics}; a [network] needs the same on all nodes: set its nics"
            )
    hosts = plans[0].per_node // cluster.gpus_per_node or 1
    groups = [
        (range(part.first_node // hosts, -(-(part.first_node + part.nodes) // hosts)), plan)
        for part, plan in zip(parts[1:], plans[1:])
    ]
    return dataclasses.replace(plans[0], groups=tuple(groups))


# How the links within a node are drawn. The torus of accelerators is taken as a switch.
_NODE_LINKS = {
    "xgmi-mesh": "nvlink-mesh",
    "ports-mesh": "nvlink-mesh",
    "ports-switch": "nvswitch",
    "ports-torus": "nvswitch",
}


def _uniform(cluster: Cluster, part: NodeGroup) -> Cluster:
    """The cluster with all nodes like those of a part."""
    return msgspec.structs.replace(cluster, gpu=part.gpu, node=part.node, fabric=part.fabric, groups=(), neighbours=())


def _plan(cluster: Cluster, description: Description) -> TopologyPlan:
    nodes = -(-cluster.world_size // cluster.domain_size)
    per_node = min(cluster.domain_size, cluster.world_size)
    ports = description.nics or max(round(cluster.ports_per_gpu * per_node), 1)
    kind = cluster.node.interconnect
    interconnect = _NODE_LINKS.get(kind, kind) if cluster.gpu.nvlink_bytes_per_s else "pcie"
    return TopologyPlan(
        nodes=nodes,
        per_node=per_node,
        nics=min(math.ceil(ports), per_node),
        nic_Bps=description.nic_GBps * 1e9 or cluster.fabric.port_bytes_per_s * max(ports / per_node, 1.0),
        nvlink_Bps=description.nvlink_GBps * 1e9 or cluster.link_bytes_per_s,
        pcie_Bps=description.pcie_GBps * 1e9 or max(cluster.pcie_bytes_per_s, cluster.gpu.c2c_bytes_per_s),
        node=description.node or interconnect,
        description=description,
        links=() if description.node else tuple(row[:per_node] for row in cluster.node.links[:per_node]),
        sockets=max(cluster.node.sockets, 1),
    )


def _check_one_domain(plan: TopologyPlan) -> None:
    """Refuse the sides of a torus of nodes where there is one node."""
    dims = plan.description.dims
    if math.prod(dims) != 1:
        raise InputError(
            f"[network] dims = {list(dims)} give {math.prod(dims)} nodes, but all {plan.per_node} GPUs of the cluster "
            "are in one node or domain, whose own torus has equal sides; leave dims out"
        )


def build(plan: TopologyPlan) -> Topology:
    """Build nodes, the fabric between them, then extra links, factors and failures."""
    if plan.nodes == 1:
        _check_one_domain(plan)
    builder = Builder(plan.nodes * plan.per_node)
    for node in range(plan.nodes):
        add_node(builder, plan.of(node), node)
    if plan.nodes > 1:
        FABRICS[plan.description.fabric](builder, plan)
    for extra in plan.description.links:
        builder.replace(
            builder.existing_vertex(extra.source),
            builder.existing_vertex(extra.target),
            extra.GBps * 1e9,
            extra.latency_us * 1e3,
        )
    for name, factor in plan.description.factors.items():
        builder.scale(builder.existing_vertex(name), factor)
    for text in plan.description.failed:
        fail(builder, failure_of(text))
    relay = plan.description.fabric == "rail" and plan.description.relay and plan.nics == plan.per_node
    return builder.build(gpus_per_node=plan.per_node, relay=relay, seed=plan.description.seed)
