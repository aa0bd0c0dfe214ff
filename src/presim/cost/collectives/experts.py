"""Exchanges of experts by libraries that send a token once to each host, and there once to each rank.

DeepEP and HybridEP write into memory of the other GPUs of an NVLink domain, and into one GPU of each other domain,
which passes tokens on. Both happen at once, so the scarcer of links and ports sets the time. Ordering rows by expert is
no part of it: that is a kernel of its own. DeepEP's kernels of low latency write a token to each of its experts, where
that may be.
"""

from __future__ import annotations

import dataclasses

from presim.cost.collectives.constants import exchange_constants
from presim.cost.collectives.placement import Layout, Links
from presim.cost.price import Origin, Price
from presim.trace.collective import Routed
from presim.trace.routing import places_of

NAME = "analytic/experts"
_UNKNOWN_RANKS = 0.25  # added to the uncertainty where consecutive ranks had to be assumed


@dataclasses.dataclass(frozen=True)
class Moved:
    """Bytes that leave one rank of those that exchange; as many arrive."""

    near: float  # over the links of its NVLink domain
    far: float  # through its port


def moved(routed: Routed, layout: Layout) -> Moved:
    """Expected bytes, for experts that are chosen evenly where the program does not say otherwise.

    Of the copies for ranks, those for the rank itself or for the one that took a token from the network stay where
    they are: one in each domain's ranks.
    """
    size = float(routed.tokens * routed.token_bytes)
    if exchange_constants(routed.library).copies == "experts":
        copies = size * routed.chosen / layout.ranks
        return Moved(copies * (layout.per_node - 1), copies * (layout.ranks - layout.per_node))
    ranks = places_of(routed, layout.ranks, layout.ranks)
    domains = places_of(routed, layout.nodes, layout.ranks)
    near = ranks * (layout.per_node - 1) / layout.per_node
    far = domains * (layout.nodes - 1) / layout.nodes
    return Moved(near * size, far * size)


def price_exchange(kind: str, routed: Routed, layout: Layout, links: Links) -> Price:
    """From the moment all ranks have arrived. ``kind``: dispatch or combine, which adds up what it brings back."""
    constants = exchange_constants(routed.library)
    place, bytes_ = ("dispatch", "combine").index(kind), moved(routed, layout)
    reach = links.link_Bps * constants.link_efficiency[place]
    reach = min(reach, routed.sms * constants.sm_GBps[place] * 1e9) if routed.sms else reach
    latency = constants.base_us * 1e-6
    duration = bytes_.near / reach
    if layout.nodes > 1:
        latency += constants.network_us * 1e-6
        duration = max(duration, bytes_.far / (links.network_Bps * constants.port_efficiency))
    width = min(constants.uncertainty + (0.0 if layout.known else _UNKNOWN_RANKS), 0.9)
    bound = "latency" if latency > duration else "network"
    return Price(max(1, round((latency + duration) * 1e9)), Origin.ANALYTIC, width, NAME, bound)
