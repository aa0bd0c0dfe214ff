"""Builds a topology from the description of nodes and a fabric in a cluster file."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from presim.errors import InputError
from presim.hardware import Cluster
from presim.network.fabrics import FABRICS
from presim.network.topology import Builder, Topology


class Extra(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"source": "from", "target": "to"}):
    """A link besides those of the fabric, or instead of one: both ways."""

    source: str
    target: str
    GBps: float
    latency_us: float = 0.0


class Description(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The ``[network]`` table of a cluster's file; figures that are not given are those of its GPU, node and fabric."""

    fabric: Literal["fat-tree", "rail", "dragonfly", "torus", "ring", "mesh"] = "fat-tree"
    node: Literal["", "nvswitch", "nvlink-mesh", "pcie"] = ""  # empty: as the cluster's node has it
    levels: int = 2  # of switches in a tree
    leaf_nodes: int = 16  # nodes (of a rail: nodes, too) at one leaf switch; of a dragonfly: at one router
    pod_leaves: int = 16  # leaf switches of one pod, with three levels; of a dragonfly: routers of a group
    oversubscription: float = 1.0  # of leaf switches: what comes in from below over what goes up
    core_oversubscription: float = 1.0  # of pods, with three levels
    spines: int = 0  # paths upwards from a leaf, for ecmp; 0: as many as the leaf has ports downwards
    routing: Literal["adaptive", "ecmp"] = "adaptive"
    seed: int = 0  # of ecmp's choice of paths
    dims: tuple[int, ...] = ()  # of a torus, in nodes
    nics: float = 0.0  # of a node
    nic_GBps: float = 0.0
    nvlink_GBps: float = 0.0
    pcie_GBps: float = 0.0
    nvlink_latency_us: float = 0.5
    switch_latency_us: float = 0.5
    link_latency_us: float = 0.3
    relay: bool = True  # rails: a GPU sends through the one of its node on the receiver's rail (PXN)
    links: tuple[Extra, ...] = ()  # besides; a link that is there already gets this bandwidth
    factors: dict[str, float] = {}  # vertex name -> factor of the bandwidth of all its links: 0.5 for a slow switch


@dataclasses.dataclass(frozen=True)
class Plan:
    """A description with every figure, in bytes/s and ns."""

    nodes: int
    per_node: int
    nics: int
    nic_Bps: float
    nvlink_Bps: float
    pcie_Bps: float
    node: str
    said: Description

    @property
    def hop_ns(self) -> float:
        """From port to port through one switch."""
        return (self.said.switch_latency_us + self.said.link_latency_us) * 1e3


def description(table: Mapping[str, Any]) -> Description:
    """The typed table.

    Raises:
        InputError: a key is unknown or a figure is none.
    """
    try:
        said = msgspec.convert(dict(table), Description)
    except (msgspec.ValidationError, TypeError) as error:
        raise InputError(f"the cluster's [network] cannot be used: {error}; see docs/guide/network.md") from error
    if said.levels not in (1, 2, 3):
        raise InputError(f"[network] levels = {said.levels}: trees have 1, 2 or 3 levels of switches; choose one")
    for name in ("oversubscription", "core_oversubscription"):
        if not getattr(said, name) >= 1:
            raise InputError(f"[network] {name} = {getattr(said, name):g}: 1 is none, more is less bandwidth upwards")
    if min(said.leaf_nodes, said.pod_leaves) < 1 or said.spines < 0 or said.nics < 0:
        raise InputError(
            "[network] counts nodes, leaves, spines and NICs; none of them can be negative or no node at all"
        )
    return said


def topology_of(cluster: Cluster, table: Mapping[str, Any]) -> Topology:
    """The topology of a cluster whose file has this ``[network]`` table.

    Raises:
        InputError: the description contradicts itself or leads nowhere.
    """
    said = description(table)
    nodes = -(-cluster.world_size // cluster.domain_size)
    per_node = min(cluster.domain_size, cluster.world_size)
    ports = said.nics or max(round(cluster.ports_per_gpu * per_node), 1)
    interconnect = {"nvswitch": "nvswitch", "pcie": "pcie"}.get(cluster.node.interconnect, "nvlink-mesh")
    plan = Plan(
        nodes=nodes,
        per_node=per_node,
        nics=min(math.ceil(ports), per_node),
        nic_Bps=said.nic_GBps * 1e9 or cluster.fabric.port_bytes_per_s * max(ports / per_node, 1.0),
        nvlink_Bps=said.nvlink_GBps * 1e9 or cluster.link_bytes_per_s,
        pcie_Bps=said.pcie_GBps * 1e9 or max(cluster.pcie_bytes_per_s, cluster.gpu.c2c_bytes_per_s),
        node=said.node or interconnect,
        said=said,
    )
    return build(plan)


def build(plan: Plan) -> Topology:
    """Nodes, then the fabric between them, then what is said besides."""
    builder = Builder(plan.nodes * plan.per_node)
    for node in range(plan.nodes):
        _node(builder, plan, node)
    if plan.nodes > 1:
        FABRICS[plan.said.fabric](builder, plan)
    for extra in plan.said.links:
        builder.replace(
            builder.known(extra.source), builder.known(extra.target), extra.GBps * 1e9, extra.latency_us * 1e3
        )
    for name, factor in plan.said.factors.items():
        builder.scale(builder.known(name), factor)
    relay = plan.said.fabric == "rail" and plan.said.relay and plan.nics == plan.per_node
    return builder.build(gpus_per_node=plan.per_node, relay=relay, seed=plan.said.seed)


def _node(builder: Builder, plan: Plan, node: int) -> None:
    """GPUs joined with each other, and each with its NIC."""
    gpus = range(node * plan.per_node, (node + 1) * plan.per_node)
    half_ns = plan.said.nvlink_latency_us * 500
    if plan.node == "nvlink-mesh" and plan.per_node > 1:
        for one in gpus:
            for other in gpus:
                if one < other:
                    builder.both_ways(one, other, plan.nvlink_Bps / (plan.per_node - 1), 2 * half_ns)
    elif plan.node == "nvswitch" and plan.per_node > 1:
        switch = builder.vertex(f"node{node}.nvswitch")
        for gpu in gpus:
            builder.both_ways(gpu, switch, plan.nvlink_Bps, half_ns)
    root = -1
    if plan.node == "pcie" and plan.per_node > 1:
        root = builder.vertex(f"node{node}.pcie")
        for gpu in gpus:
            builder.both_ways(gpu, root, plan.pcie_Bps, half_ns)
    if plan.nodes == 1:
        return
    for place, gpu in enumerate(gpus):
        nic = builder.vertex(f"node{node}.nic{place * plan.nics // plan.per_node}")
        if root < 0:
            builder.both_ways(gpu, nic, plan.pcie_Bps, half_ns)
        elif place * plan.nics % plan.per_node < plan.nics:
            builder.both_ways(root, nic, plan.pcie_Bps, half_ns)
