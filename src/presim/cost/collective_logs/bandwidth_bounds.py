"""Minimum time of a collective by link bandwidth. Shorter times in logs or tables are rejected."""

from __future__ import annotations

from presim.cost.collectives.expert_exchange import exchanged_bytes
from presim.cost.collectives.group_placement import layout_of, links_of
from presim.hardware import Cluster
from presim.trace.collective import Collective
from presim.trace.schema import Group

_TOLERANCE = 0.95  # of rounded times, and of ports whose nominal rate is rounded
_REASON = "faster than the links allow"


def least_seconds(collective: Collective, ranks: tuple[int, ...], cluster: Cluster) -> float:
    """Minimum time for each rank to receive its data over its links, and for each node over its ranks' ports.

    This assumes the best case: switches that reduce, so that data arrives once. 0 for kinds whose volume is unknown.
    """
    layout = layout_of(collective, Group("all", ranks, len(ranks)), cluster)
    if layout.ranks <= 1 or collective.kind in ("barrier", "gather", "scatter"):
        return 0.0
    links = links_of(cluster, layout)
    if collective.routed is not None:
        traffic = exchanged_bytes(collective.routed, layout)
        return max(traffic.link_bytes / links.link_Bps, traffic.port_bytes / links.network_Bps)
    message = collective.kind in ("send", "recv", "send_recv")
    node_share = 1.0 if message else (layout.ranks - 1) / layout.ranks
    if layout.nodes == 1:
        return collective.bytes * node_share / links.link_Bps
    distinct_ranks = layout.per_node if collective.kind == "all_to_all" else 1  # ranks of a node whose data differ
    other_nodes_share = 1.0 if message else (layout.nodes - 1) / layout.nodes
    return collective.bytes * other_nodes_share * distinct_ranks / (links.network_Bps * layout.per_node)


def least_ns(collective: Collective, ranks: tuple[int, ...], cluster: Cluster) -> float:
    """Minimum price by link bandwidth where it is known, with the tolerance of measured times."""
    return _TOLERANCE * least_seconds(collective, ranks, cluster) * 1e9 if ranks else 0.0


def impossible(collective: Collective, ranks: tuple[int, ...], cluster: Cluster, seconds: float) -> str:
    """The reason why a time is impossible; empty if it is possible."""
    return _REASON if seconds < _TOLERANCE * least_seconds(collective, ranks, cluster) else ""
