"""Keys of a ``[network]`` table that have no effect on a cluster of this size and these nodes.

Keys that a fabric never has are refused (`presim.hardware.network.build_topology`). These here have an effect on other
clusters, so that one file serves jobs of every size.
"""

from __future__ import annotations

from collections.abc import Iterator

from presim.hardware import Cluster
from presim.hardware.network.build_topology import FABRICS_OF_KEYS, TREES, TopologyPlan, plan_of

_BETWEEN_NODES = (
    "fabric", *FABRICS_OF_KEYS, "routing", "seed", "nics", "nic_GBps", "switch_latency_us", "link_latency_us",
)  # fmt: skip
_OF_A_PCIE_TREE = ("pcie_switch_gpus", "socket_GBps")


def unused_keys_note(cluster: Cluster) -> str:
    """A sentence on keys of a cluster's ``[network]`` without effect; empty: there are none."""
    table = cluster.network
    if not table:
        return ""
    plan = plan_of(cluster, table)
    clauses = [
        f"{', '.join(names)} ({reason})"
        for keys, reason in _keys_and_reasons(plan)
        if (names := [key for key in keys if key in table])
    ]
    return f"These keys of [network] have no effect: {'; '.join(clauses)}." if clauses else ""


def _keys_and_reasons(plan: TopologyPlan) -> Iterator[tuple[tuple[str, ...], str]]:
    """Keys that have no effect in a plan, and why."""
    description = plan.description
    if plan.nodes == 1:
        yield _BETWEEN_NODES, f"all {plan.per_node} GPUs are in one node or NVLink domain"
    elif plan.nodes <= description.leaf_nodes and description.fabric in ("fat-tree", "dragonfly"):
        nodes = f"all {plan.nodes} nodes are at one switch, which has {description.leaf_nodes}"
        yield ("oversubscription", "core_oversubscription", "pod_leaves"), nodes
    elif _are_in_one_pod(plan):
        scarce_key = "oversubscription" if description.fabric == "dragonfly" else "core_oversubscription"
        yield (scarce_key,), f"all switches are in one group or pod of {description.pod_leaves}"
    if plan.nodes > 1 and description.fabric in TREES and description.routing == "adaptive":
        yield ("spines", "seed"), "routing is adaptive"
    meets_over_pcie = plan.node in ("pcie", "nvlink-pairs") or any(0 in row[:gpu] for gpu, row in enumerate(plan.links))
    if not meets_over_pcie or plan.per_node == 1:
        yield _OF_A_PCIE_TREE, "no two GPUs of a node meet over PCIe"
    if plan.node == "pcie" or plan.per_node == 1:
        yield ("nvlink_GBps",), "no two GPUs have NVLink between them"


def _are_in_one_pod(plan: TopologyPlan) -> bool:
    """Whether a tree of three levels has one pod, or a dragonfly one group."""
    description = plan.description
    switches = -(-plan.nodes // description.leaf_nodes) * (plan.nics if description.fabric == "rail" else 1)
    has_pods = description.levels == 3 or description.fabric == "dragonfly"
    return has_pods and description.fabric in FABRICS_OF_KEYS["pod_leaves"] and switches <= description.pod_leaves
