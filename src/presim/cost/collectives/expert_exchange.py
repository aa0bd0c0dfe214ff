"""Prices of expert-parallel exchanges (dispatch and combine) by DeepEP and HybridEP.

These libraries send a token once to each host, and there once to each rank. They write to the other GPUs of the NVLink
domain, and to one GPU of each other domain, which forwards tokens. Both happen concurrently, so the slowest of links,
ports and SMs determines the time. Sorting rows by expert is not included; that is a separate kernel. DeepEP's
low-latency kernels write a token directly to each of its experts.
"""

from __future__ import annotations

import dataclasses

from presim.cost.collectives.collective_constants import ExchangeConstants, exchange_constants
from presim.cost.collectives.deepep_copies import copying_seconds
from presim.cost.collectives.group_placement import GroupPlacement, Links
from presim.cost.price import Origin, Price
from presim.trace.collective import Collective, Routed
from presim.trace.even_routing import places_of

NAME = "analytic/experts"
_UNKNOWN_RANKS = 0.25  # added to the uncertainty if consecutive ranks were assumed


@dataclasses.dataclass(frozen=True)
class ExchangedBytes:
    """Bytes sent by one rank. It receives as many."""

    link_bytes: float  # over the links of its NVLink domain
    port_bytes: float  # through its port


def exchanged_bytes(routed: Routed, layout: GroupPlacement) -> ExchangedBytes:
    """Expected bytes. Experts are chosen uniformly unless the program records its routing.

    Of the copies within a domain, one rank's share does not move: that of the sender or of the forwarding rank.
    """
    size = float(routed.tokens * routed.token_bytes)
    kind = exchange_constants(routed.library).copies
    if kind != "places":
        copies = size * routed.chosen / layout.ranks
        if kind == "experts by the port":
            return ExchangedBytes(0.0, copies * (layout.ranks - 1))
        return ExchangedBytes(copies * (layout.per_node - 1), copies * (layout.ranks - layout.per_node))
    ranks = places_of(routed, layout.ranks, layout.ranks)
    domains = places_of(routed, layout.nodes, layout.ranks)
    link_copies = ranks * (layout.per_node - 1) / layout.per_node
    port_copies = domains * (layout.nodes - 1) / layout.nodes
    return ExchangedBytes(link_copies * size, port_copies * size)


def price_exchange(collective: Collective, routed: Routed, layout: GroupPlacement, links: Links) -> Price:
    """Price of a dispatch or a combine (which also sums the tokens), from the moment all ranks have arrived."""
    constants = exchange_constants(routed.library)
    latency, duration = seconds_of(collective, routed, layout, links, constants)
    width = constants.uncertainty + (constants.peer_uncertainty if layout.nodes == 2 else 0.0)
    width = min(width + (0.0 if layout.has_known_ranks else _UNKNOWN_RANKS), 0.9)
    bound = "latency" if latency > duration else "network"
    return Price(max(1, round((latency + duration) * 1e9)), Origin.ANALYTIC, width, NAME, bound)


def seconds_of(
    collective: Collective, routed: Routed, layout: GroupPlacement, links: Links, constants: ExchangeConstants
) -> tuple[float, float]:
    """(latency, transfer time) in seconds. The slowest of links, SMs and port determines the transfer time."""
    phase, traffic = ("dispatch", "combine").index(collective.kind), exchanged_bytes(routed, layout)
    reach = links.link_Bps * constants.link_efficiency[phase]
    if routed.sms:
        reach = min(reach, routed.sms * constants.sm_GBps[phase] * 1e9)
    latency, duration = constants.base_us * 1e-6, traffic.link_bytes / reach
    if routed.sms and constants.copying is not None:
        is_scaled = collective.dtype.startswith("float8")
        copying = copying_seconds(phase, routed, is_scaled, layout, links.generation, constants.copying)
        duration = max(duration, copying)
    if layout.nodes > 1:
        latency += constants.network_us * 1e-6
    if traffic.port_bytes:
        share = min(constants.port_efficiency, constants.peer_efficiency * max(layout.nodes - 1, 1))
        duration = max(duration, traffic.port_bytes / (links.network_Bps * share))
    return latency, duration
