"""Max-min fair rates of whole transfers that run at the same time.

All flows of a transfer progress in lockstep, like the steps of a collective, and carry equal bytes. A transfer
therefore has one rate, limited by its most contended link. Rates rise together until a link is full, which fixes all
transfers on it, or until a transfer is as fast as alone, and so on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from presim.network.topology import Floats, Ints, Topology

_SAME = 1 + 1e-9  # relative tolerance of equal levels
_NARROWER = 0.999  # of what can come to a link: above this it never limits


@dataclasses.dataclass(frozen=True)
class Load:
    """Traffic of a transfer on the links."""

    link_bytes: Floats  # by link
    flow_bytes: float  # bytes of each of its flows
    alone_s: float  # duration alone, whatever limits it; at least what its bytes need on each link


def shared_seconds(bandwidth_Bps: Floats, loads: Sequence[Load]) -> list[float]:
    """Seconds of each transfer if all transfers last at least as long."""
    if len(loads) < 2:
        return [load.alone_s for load in loads]
    flows = np.array([load.link_bytes / load.flow_bytes for load in loads])  # [transfer, link]
    fastest = np.array([load.flow_bytes / load.alone_s for load in loads])
    used = np.flatnonzero(flows.any(axis=0))
    flows, free_Bps = flows[:, used], bandwidth_Bps[used].astype(np.float64)
    rate = np.zeros(len(loads))
    is_open = np.ones(len(loads), bool)
    while is_open.any():
        open_flows = flows[is_open].sum(axis=0)
        level = np.divide(free_Bps, open_flows, out=np.full(len(free_Bps), np.inf), where=open_flows > 0)
        lowest_level, fastest_open = float(level.min(initial=np.inf)), float(fastest[is_open].min())
        if fastest_open <= lowest_level * _SAME:
            fixed = is_open & (fastest <= fastest_open)
            rate[fixed] = fastest[fixed]
        else:
            full = level <= lowest_level * _SAME
            fixed = is_open & (flows[:, full] > 0).any(axis=1)
            rate[fixed] = lowest_level
        free_Bps = np.maximum(free_Bps - rate[fixed] @ flows[fixed], 0.0)
        is_open &= ~fixed
    return [
        load.alone_s * float(alone_rate / final_rate)
        for load, alone_rate, final_rate in zip(loads, fastest, rate, strict=True)
    ]


def congestible_links(topology: Topology) -> NDArray[np.bool_]:
    """Links of the fabric with less bandwidth than can reach their source or leave their target.

    Other links are never more loaded than their neighbours and finally the ports of nodes.
    """
    source, target, vertices = topology.source, topology.target, len(topology.names)
    Bps = topology.bandwidth_Bps
    into, out = np.bincount(target, Bps, minlength=vertices), np.bincount(source, Bps, minlength=vertices)
    back = _pair_bandwidths_Bps(target * vertices + source, source * vertices + target, Bps)
    same = _pair_bandwidths_Bps(source * vertices + target, source * vertices + target, Bps)  # parallel links
    reaches = np.minimum(into[source], out[target]) - back
    result: NDArray[np.bool_] = ~topology.within_nodes() & (same < _NARROWER * reaches)
    return result


def _pair_bandwidths_Bps(queried_pairs: Ints, link_pairs: Ints, Bps: Floats) -> Floats:
    """Bandwidth of all links of each pair of vertices."""
    pairs, pair_by_link = np.unique(link_pairs, return_inverse=True)
    total = np.bincount(pair_by_link.reshape(-1), Bps)
    positions = np.minimum(np.searchsorted(pairs, queried_pairs), len(pairs) - 1)
    return np.where(pairs[positions] == queried_pairs, total[positions], 0.0)
