"""Chooses the cluster from command-line options: names, counts, a file, or a file with overrides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from presim.errors import InputError
from presim.hardware.catalogue import find, read
from presim.hardware.cluster import Cluster, Fabric, Node
from presim.hardware.codec import GUIDE, load_toml
from presim.hardware.gpu_schema import Gpu, Sourced
from presim.hardware.node_groups import check_groups, nodes_of, with_groups

P = TypeVar("P", bound=Sourced)
_MOST_RANKS = 1 << 20  # keeps per-rank data small
_COUNTS = ("nodes", "gpus_per_node", "world_size")
_TABLES = ("nccl", "collectives", "network")
_KEYS = ("gpu", "node", "fabric", *_COUNTS, *_TABLES, "groups")


def choose_cluster(
    *,
    gpu: str | None = None,
    node: str | None = None,
    fabric: str | None = None,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    world_size: int | None = None,
    cluster: str | Path | None = None,
) -> Cluster:
    """The cluster from a file, from names and counts, or from a file with overrides.

    Defaults: the GPU's default node, the node's default fabric, and one GPU without counts. The collectives of a file
    are used only with the file's own GPU, node and fabric.
    """
    named_parts = _named_parts(gpu, node, fabric)
    counts = {"nodes": nodes, "gpus_per_node": gpus_per_node, "world_size": world_size}
    described = _described(Path(cluster)) if cluster is not None else {}
    if any(value is not None for value in counts.values()):
        described = {key: value for key, value in described.items() if key not in _COUNTS}
    settings = {**described, **{key: value for key, value in {**named_parts, **counts}.items() if value is not None}}
    groups = described.get("groups", ())
    if groups:
        settings = _complete_from_groups(
            settings, groups, {key: value for key, value in named_parts.items() if value is not None}
        )
    if "gpu" not in settings:
        raise InputError("no GPU is named: use --gpu, e.g. --gpu h100-sxm; `presim hardware list` shows all.")
    location = str(cluster or "")
    parts = gpu_part, node_part, fabric_part = _parts(settings, location)
    count, per_node = _shape(node_part, *(settings.get(key) for key in _COUNTS))
    if count * per_node > _MOST_RANKS:
        raise InputError(
            f"{count} nodes x {per_node} GPUs are more than the {_MOST_RANKS:,} ranks that a job may have."
        )
    variables = {name: str(value) for name, value in described.get("nccl", {}).items()}
    collectives = described.get("collectives", {})
    if collectives and parts != _parts({"gpu": settings["gpu"], **described}, location):
        collectives = {}  # the measurements are of another GPU, node or fabric
    network = described.get("network", {})
    uniform_cluster = Cluster(gpu_part, node_part, fabric_part, count, per_node, variables, collectives, network)
    if uniform_cluster.domain_size < uniform_cluster.world_size and not uniform_cluster.network_bytes_per_s > 0:
        raise InputError(
            f"{location or node_part.id}: {count} nodes cannot reach each other: {node_part.id} has {node_part.nics} "
            f"network ports (nics); give it some, or use one node (see {GUIDE})."
        )
    if not groups:
        return uniform_cluster
    default_parts: dict[str, Any] = {key: settings[key] for key in ("gpu", "node", "fabric") if key in settings}
    return with_groups(
        uniform_cluster, groups, lambda table: _parts(_complete_group_table(table, default_parts), location)
    )


def _named_parts(gpu: str | None, node: str | None, fabric: str | None) -> dict[str, str | None]:
    """The names by option; an empty one, as of an unset variable in a shell, is none."""
    named_parts = {"gpu": gpu, "node": node, "fabric": fabric}
    for option, name in named_parts.items():
        if isinstance(name, str) and not name.strip():
            raise InputError(f"--{option} is empty: leave it out, or name one that `presim hardware list` shows.")
    return named_parts


def _complete_from_groups(
    settings: Mapping[str, Any], groups: Sequence[Mapping[str, Any]], named_parts: Mapping[str, str]
) -> dict[str, Any]:
    """Defaults of a file with groups: the number of nodes of all groups, and the first group's GPU for the rest."""
    if named_parts:
        key, value = next(iter(named_parts.items()))
        raise InputError(f"--{key} {value} does not apply to a single group of the cluster file; change the file")
    completed = dict(settings)
    if not any(key in settings for key in ("nodes", "world_size")):
        completed["nodes"] = nodes_of(groups)
    if "gpu" not in settings:
        named = [table["gpu"] for table in groups if "gpu" in table]
        completed |= {"gpu": named[0]} if named else {}
    return completed


def _complete_group_table(table: Mapping[str, Any], default_parts: Mapping[str, Any]) -> dict[str, Any]:
    """The table of a group, completed: its own GPU or node implies the default node and fabric."""
    group_parts = {key: table[key] for key in ("gpu", "node", "fabric") if key in table}
    inherited_parts = {"gpu": default_parts["gpu"]}
    if "gpu" not in group_parts and "node" in default_parts:
        inherited_parts["node"] = default_parts["node"]
    if not group_parts.keys() & {"gpu", "node"} and "fabric" in default_parts:
        inherited_parts["fabric"] = default_parts["fabric"]
    return {**inherited_parts, **group_parts}


def _described(path: Path) -> dict[str, Any]:
    """The keys of a cluster file. Paths in it are relative to the file."""
    table = load_toml(path)
    if unknown := [key for key in table if key not in _KEYS]:
        raise InputError(f"{path}: unknown key {unknown[0]}; a cluster has {', '.join(_KEYS)}, see {GUIDE}.")
    for key in _COUNTS:
        if key in table and (type(table[key]) is not int or table[key] < 1):
            raise InputError(f"{path}: {key} = {table[key]!r} must be a whole number of at least 1; correct it.")
    for key in _TABLES:
        if not isinstance(table.get(key, {}), dict):
            raise InputError(f"{path}: {key} = {table[key]!r} must be a table; see {GUIDE}.")
    table["groups"] = check_groups(table.get("groups", []), str(path))
    if foreign := [name for name in table.get("nccl", {}) if not name.startswith("NCCL_")]:
        raise InputError(f"{path}: [nccl] has {foreign[0]}, which is not a variable of NCCL (NCCL_…); correct it.")
    for part in (table, *table["groups"]):
        for key in ("gpu", "node", "fabric"):
            if isinstance(part.get(key), str) and part[key].endswith(".toml"):
                part[key] = str(path.parent / part[key])
    return table


def _parts(settings: Mapping[str, Any], location: str) -> tuple[Gpu, Node, Fabric]:
    gpu = _part(Gpu, settings["gpu"], location)
    node = _part(Node, settings.get("node", gpu.default_node), location)
    return gpu, node, _part(Fabric, settings.get("fabric", node.default_fabric), location)


def _part(kind: type[P], described: str | Mapping[str, Any], location: str) -> P:
    """A part by id, alias or path, or from a table in the cluster file."""
    if isinstance(described, str):
        return find(kind, described)
    if isinstance(described, Mapping):
        return read(kind, described, f"{location} [{kind.__name__.lower()}]")
    prefix = f"{location}: " if location else ""
    raise InputError(f"{prefix}{kind.__name__.lower()} = {described!r} must be a name, a path or a table; correct it.")


def _shape(node: Node, nodes: int | None, per_node: int | None, world: int | None) -> tuple[int, int]:
    """Number of nodes and of GPUs per node. Missing counts follow from the others."""
    for name, value in (("--nodes", nodes), ("--gpus-per-node", per_node), ("--world-size", world)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise InputError(f"{name} is {value!r}: it must be a whole number of at least 1.")
    if per_node is None:
        per_node = _per_node(node, nodes, world)
    if per_node > node.domain:
        raise InputError(
            f"{per_node} GPUs per node are more than the {node.domain} of {node.id}: "
            f"use --gpus-per-node {node.gpus} and more --nodes, or describe your own node type ({GUIDE})."
        )
    if world is None:
        return nodes or 1, per_node
    if nodes is not None and nodes * per_node != world:
        raise InputError(
            f"{nodes} nodes x {per_node} GPUs per node are {nodes * per_node} ranks, not a world size of {world}; "
            f"omit one of the three."
        )
    if world % per_node:
        raise InputError(
            f"world size {world} is not a multiple of {per_node} GPUs per node: use --nodes with --gpus-per-node "
            f"instead, e.g. {_split(world, node.gpus)}, or a world size of {_multiples(world, per_node)}."
        )
    return world // per_node, per_node


def _per_node(node: Node, nodes: int | None, world: int | None) -> int:
    if nodes is None:
        return min(world or 1, node.gpus)
    if world is None:
        return node.gpus
    if world % nodes:
        raise InputError(
            f"world size {world} cannot be spread over {nodes} nodes evenly: use --nodes {_split_nodes(world, nodes)}."
        )
    return world // nodes


def _split(world: int, max_gpus_per_node: int) -> str:
    """Options for exactly this world size, with as many GPUs per node as possible."""
    per_node = max(count for count in range(1, max_gpus_per_node + 1) if world % count == 0)
    return f"--nodes {world // per_node} --gpus-per-node {per_node}"


def _split_nodes(world: int, nodes: int) -> int:
    """The divisor of the world size nearest to ``nodes``."""
    divisors = (count for count in range(1, world + 1) if world % count == 0)
    return min(divisors, key=lambda count: (abs(count - nodes), count))


def _multiples(world: int, per_node: int) -> str:
    below, above = world // per_node * per_node, -(-world // per_node) * per_node
    return f"{below} or {above}" if below else str(above)
