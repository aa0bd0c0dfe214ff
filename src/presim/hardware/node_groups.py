"""Groups of nodes with their own GPU, node type or fabric: ``[[groups]]`` in a cluster file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from presim.errors import InputError
from presim.hardware.cluster import Cluster, Fabric, Node, NodeGroup
from presim.hardware.gpu_schema import Gpu

_KEYS = ("name", "nodes", "first_node", "gpu", "node", "fabric")
Parts = tuple[Gpu, Node, Fabric]


def check_groups(tables: Any, location: str) -> list[dict[str, Any]]:
    """The unchanged tables of the groups.

    Raises:
        InputError: a key is unknown or missing, or a count is not a whole number.
    """
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise InputError(f"{location}: groups must be tables, each with its own [[groups]]; correct it.")
    for number, table in enumerate(tables):
        group_location = f"{location}: [[groups]] {table.get('name', number)}"
        if unknown := [key for key in table if key not in _KEYS]:
            raise InputError(f"{group_location}: unknown key {unknown[0]}; a group has {', '.join(_KEYS)}.")
        for key, least in (("nodes", 1), ("first_node", 0)):
            value = table.get(key, least)
            if type(value) is not int or value < least:
                raise InputError(
                    f"{group_location}: {key} = {value!r} must be a whole number of at least {least}; correct it."
                )
        if "nodes" not in table:
            raise InputError(f"{group_location}: the number of nodes is missing; add nodes = N.")
    return tables


def nodes_of(tables: Sequence[Mapping[str, Any]]) -> int:
    """Minimum number of nodes for the groups."""
    return max((first + table["nodes"] for first, table in zip(_firsts(tables), tables)), default=0)


def with_groups(
    cluster: Cluster, tables: Sequence[Mapping[str, Any]], parts: Callable[[Mapping[str, Any]], Parts]
) -> Cluster:
    """The cluster with its groups. Keys that a group lacks are those of the rest.

    Args:
        cluster: the cluster without groups.
        tables: result of `check_groups`.
        parts: converts a group's table to its GPU, node and fabric.

    Raises:
        InputError: groups overlap or reach beyond the cluster, or a node has too few GPUs.
    """
    groups: list[NodeGroup] = []
    for number, (first, table) in enumerate(zip(_firsts(tables), tables)):
        name = str(table.get("name", f"group {number}"))
        gpu, node, fabric = parts(table)
        end = first + table["nodes"]
        if end > cluster.nodes:
            raise InputError(
                f"group {name!r} has nodes {first} to {end - 1}, but the cluster has {cluster.nodes} nodes; "
                f"set nodes = {end}, or reduce the group"
            )
        for other in groups:
            if other.name == name:
                raise InputError(f"two groups are named {name!r}; give each its own name")
            if first < other.first_node + other.nodes and other.first_node < end:
                shared_node = max(first, other.first_node)
                raise InputError(f"groups {other.name!r} and {name!r} both have node {shared_node}; change one of them")
        if cluster.gpus_per_node > node.domain:
            raise InputError(
                f"group {name!r} has nodes of {node.domain} GPUs ({node.id}), but the cluster uses "
                f"{cluster.gpus_per_node} of each node; use --gpus-per-node {node.domain}"
            )
        groups.append(NodeGroup(name, first, table["nodes"], gpu, node, fabric))
    return msgspec.structs.replace(cluster, groups=tuple(groups))


def _firsts(tables: Sequence[Mapping[str, Any]]) -> list[int]:
    """First node of each group: its own value, else the node after the previous group."""
    firsts: list[int] = []
    after = 0
    for table in tables:
        firsts.append(table.get("first_node", after))
        after = firsts[-1] + table["nodes"]
    return firsts
