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

from presim.hardware.network.topology import Floats, Ints, Topology

_SAME = 1 + 1e-9  # relative tolerance of equal levels
_NARROWER = 0.999  # of what can come to a link: above this it never limits


@dataclasses.dataclass(frozen=True)
class LinkTraffic:
    """Traffic of a transfer on the links."""

    link_bytes: Floats  # by link
    flow_bytes: float  # bytes of each of its flows
    alone_s: float  # duration alone, whatever limits it; at least what its bytes need on each link


def shared_seconds(bandwidth_Bps: Floats, loads: Sequence[LinkTraffic]) -> list[float]:
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


def shared_links(topology: Topology) -> NDArray[np.bool_]:
    """Mask of links that several GPUs may use: all but those that end at a GPU."""
    result: NDArray[np.bool_] = (topology.source >= topology.gpus) & (topology.target >= topology.gpus)
    return result


def port_links(topology: Topology) -> NDArray[np.bool_]:
    """Mask of links between a NIC and its switch or PCIe tree."""
    is_nic = _nics(topology)
    result: NDArray[np.bool_] = shared_links(topology) & (is_nic[topology.source] | is_nic[topology.target])
    return result


def congestible_links(topology: Topology) -> NDArray[np.bool_]:
    """Shared links with less bandwidth than can reach their source or leave their target.

    Other links are never more loaded than their neighbours and finally the ports of nodes. A link may be left out only
    because of links that stay: a link above two leaves and the equal one behind it do not leave out each other. The
    port of a single GPU is no such link; what one GPU sends at a time is modelled in `presim.cost.overlap`.
    """
    source, target, vertices = topology.source, topology.target, len(topology.names)
    Bps = topology.bandwidth_Bps
    into, out = np.bincount(target, Bps, minlength=vertices), np.bincount(source, Bps, minlength=vertices)
    back = _pair_sums(target * vertices + source, source * vertices + target, Bps)
    same = _pair_sums(source * vertices + target, source * vertices + target, Bps)  # parallel links
    candidates = shared_links(topology) & ~_private_ports(topology)
    is_fed_less = same >= _NARROWER * (into[source] - back)
    is_drained_less = same >= _NARROWER * (out[target] - back)
    left_out = (candidates & is_fed_less).astype(np.float64)
    left_out_at = np.bincount(source, left_out, minlength=vertices).astype(np.float64)
    left_out_behind = left_out_at[target] - _pair_sums(target * vertices + source, source * vertices + target, left_out)
    result: NDArray[np.bool_] = candidates & ~is_fed_less & ~(is_drained_less & (left_out_behind <= 0))
    return result


def _nics(topology: Topology) -> NDArray[np.bool_]:
    return np.array([".nic" in name for name in topology.names])


def _private_ports(topology: Topology) -> NDArray[np.bool_]:
    """Mask of a NIC's links where it serves one GPU."""
    of_gpu, vertices = topology.source < topology.gpus, len(topology.names)
    inside = topology.within_nodes() & ~of_gpu & (topology.target >= topology.gpus)
    is_nic = _nics(topology)
    node = np.array([name.split(".")[0] for name in topology.names])
    inside &= node[topology.source] == node[topology.target]  # from a PCIe tree, which may carry any GPU's data
    inside &= ~np.array([name.endswith(".router") for name in topology.names])[topology.source]
    users = np.bincount(topology.target, of_gpu + topology.gpus * inside, minlength=vertices)
    is_private = is_nic & (users <= 1)
    result: NDArray[np.bool_] = is_private[topology.source] | is_private[topology.target]
    return result


def _pair_sums(queried_pairs: Ints, link_pairs: Ints, by_link: Floats) -> Floats:
    """Sum of a figure of links, such as their bandwidth, over all links of each pair of vertices."""
    pairs, pair_by_link = np.unique(link_pairs, return_inverse=True)
    total = np.bincount(pair_by_link.reshape(-1), by_link)
    positions = np.minimum(np.searchsorted(pairs, queried_pairs), len(pairs) - 1)
    return np.where(pairs[positions] == queried_pairs, total[positions], 0.0)
