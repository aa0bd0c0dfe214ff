"""The least time that the wires allow a collective: what a log or a table says to be faster cannot be true."""

from __future__ import annotations

from presim.cost.collectives.experts import moved
from presim.cost.collectives.placement import layout_of, links_of
from presim.hardware import Cluster
from presim.trace.collective import Collective
from presim.trace.schema import Group

_TOLERANCE = 0.95  # of rounded times, and of ports whose rate is a round number
_REASON = "faster than the wires allow"


def least_seconds(collective: Collective, ranks: tuple[int, ...], cluster: Cluster) -> float:
    """What each rank has to take in at least, over its links; what each node has to, over the ports of its ranks.

    That of the best there is: switches that sum, so that data come in once. 0 for kinds that move what nobody knows.
    """
    layout = layout_of(collective, Group("all", ranks, len(ranks)), cluster)
    if layout.ranks <= 1 or collective.kind in ("barrier", "gather", "scatter"):
        return 0.0
    links = links_of(cluster, layout)
    if collective.routed is not None:
        bytes_ = moved(collective.routed, layout)
        return max(bytes_.near / links.link_Bps, bytes_.far / links.network_Bps)
    message = collective.kind in ("send", "recv", "send_recv")
    near = 1.0 if message else (layout.ranks - 1) / layout.ranks
    if layout.nodes == 1:
        return collective.bytes * near / links.link_Bps
    own = layout.per_node if collective.kind == "all_to_all" else 1  # ranks of a node whose data differ
    far = 1.0 if message else (layout.nodes - 1) / layout.nodes
    return collective.bytes * far * own / (links.network_Bps * layout.per_node)


def least_ns(collective: Collective, ranks: tuple[int, ...], cluster: Cluster) -> float:
    """Less than this no price may be; as far as wires are known, and with the tolerance that measured times have."""
    return _TOLERANCE * least_seconds(collective, ranks, cluster) * 1e9 if ranks else 0.0


def impossible(collective: Collective, ranks: tuple[int, ...], cluster: Cluster, seconds: float) -> str:
    """Why a time cannot be true, in words; empty where it can."""
    return _REASON if seconds < _TOLERANCE * least_seconds(collective, ranks, cluster) else ""
