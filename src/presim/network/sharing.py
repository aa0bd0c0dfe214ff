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
    """Duration of each transfer if all others lasted at least as long."""
    if len(loads) < 2:
        return [one.alone_s for one in loads]
    flows = np.array([one.link_bytes / one.flow_bytes for one in loads])  # [transfer, link]
    fastest = np.array([one.flow_bytes / one.alone_s for one in loads])
    used = np.flatnonzero(flows.any(axis=0))
    flows, left = flows[:, used], bandwidth_Bps[used].astype(np.float64)
    rate = np.zeros(len(loads))
    is_open = np.ones(len(loads), bool)
    while is_open.any():
        wanted = flows[is_open].sum(axis=0)
        level = np.divide(left, wanted, out=np.full(len(left), np.inf), where=wanted > 0)
        least, cap = float(level.min(initial=np.inf)), float(fastest[is_open].min())
        if cap <= least * _SAME:
            fixed = is_open & (fastest <= cap)
            rate[fixed] = fastest[fixed]
        else:
            full = level <= least * _SAME
            fixed = is_open & (flows[:, full] > 0).any(axis=1)
            rate[fixed] = least
        left = np.maximum(left - rate[fixed] @ flows[fixed], 0.0)
        is_open &= ~fixed
    return [one.alone_s * float(quickest / now) for one, quickest, now in zip(loads, fastest, rate, strict=True)]


def crowdable(topology: Topology) -> NDArray[np.bool_]:
    """Links of the fabric that carry less than all that can come to their source, or leave their target.

    Others are never fuller than the links before or behind them, at last the ports of nodes.
    """
    source, target, vertices = topology.source, topology.target, len(topology.names)
    Bps = topology.bandwidth_Bps
    into, out = np.bincount(target, Bps, minlength=vertices), np.bincount(source, Bps, minlength=vertices)
    back = _of_pairs(target * vertices + source, source * vertices + target, Bps)
    same = _of_pairs(source * vertices + target, source * vertices + target, Bps)  # parallel links
    reaches = np.minimum(into[source], out[target]) - back
    result: NDArray[np.bool_] = ~topology.within_nodes() & (same < _NARROWER * reaches)
    return result


def _of_pairs(wanted: Ints, known: Ints, Bps: Floats) -> Floats:
    """Bandwidth of all links of each pair of vertices."""
    pairs, place = np.unique(known, return_inverse=True)
    total = np.bincount(place.reshape(-1), Bps)
    at = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
    return np.where(pairs[at] == wanted, total[at], 0.0)
