"""The network to draw for a GPU, a node type, a fabric or a cluster's file."""

from __future__ import annotations

from pathlib import Path

from presim.errors import InputError
from presim.hardware import choose_cluster, gpus, nodes
from presim.hardware.cluster import Cluster, Fabric, Node
from presim.hardware.codec import load_toml
from presim.hardware.gpu_schema import Gpu, Sourced
from presim.hardware.network.build_topology import topology_of
from presim.hardware.network.topology import Topology

_USUAL_NODE = "hgx-h100"
_MOST_HOSTS = 48  # of a domain in a picture: pods of accelerators have thousands


def is_cluster(name: str) -> bool:
    """Whether a name is the path of a cluster's file."""
    return name.endswith(".toml") and Path(name).exists() and bool({"gpu", "groups"} & load_toml(Path(name)).keys())


def network_of_cluster(name: str) -> tuple[Cluster, Topology]:
    """The cluster of a file and its network."""
    cluster = choose_cluster(cluster=Path(name))
    return cluster, topology_of(cluster, cluster.network)


def network_of_part(name: str, part: Sourced) -> Topology:
    """Two nodes (or racks) of a node type or of the GPU's usual one; four nodes under two leaf switches for a fabric.

    Raises:
        InputError: no GPU of the catalogue usually sits in nodes of this type.
    """
    if isinstance(part, Gpu):
        return network_of_part(part.default_node, _node(part.default_node))
    if isinstance(part, Node):
        hosts = min(max(part.domain // part.gpus, 1), _MOST_HOSTS)  # of one NVLink domain
        return topology_of(choose_cluster(gpu=_gpu_of(part), node=name, nodes=2 * hosts), {})
    assert isinstance(part, Fabric), "test_drawn: every part of the catalogue"
    usual = next((node.id for node in nodes() if node.default_fabric == part.id), _USUAL_NODE)
    cluster = choose_cluster(gpu=_gpu_of(_node(usual)), node=usual, fabric=name, nodes=4)
    return topology_of(cluster, {"leaf_nodes": 2, "oversubscription": max(part.oversubscription, 1.0)})


def _node(identity: str) -> Node:
    return next(node for node in nodes() if node.id == identity)


def _gpu_of(node: Node) -> str:
    """A GPU that usually sits in such a node, else one with the same kind of links."""
    named = [gpu.id for gpu in gpus() if gpu.default_node == node.id]
    bridged = node.interconnect != "pcie"
    alike = [gpu.id for gpu in gpus() if bool(gpu.nvlink_bytes_per_s) == bridged and "NVIDIA" in gpu.name]
    if not named + alike:
        raise InputError(f"no GPU of the catalogue sits in {node.id}: draw a cluster's file that names one")
    return (named + alike)[0]
