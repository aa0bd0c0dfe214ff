"""Collectives of a cluster whose network is described: flow by flow where groups share links, analytic elsewhere.

All groups of one kind (the sisters of a group: its translations over the world) do the same at the same time. Their
flows go on in step, so together they take what the busiest link that they share needs for their bytes, or the white-box
model's time of one group, if that is longer. The engine uses the same links and rule for transfers of different groups,
so the time does not depend on which ranks are simulated.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from presim.cost.collectives.fabric_traffic import (
    MOST_FLOWS,
    Groups,
    can_be_found,
    crosses_fabric,
    described_network,
    exchanging_ranks,
    has_too_many_flows,
    seconds_on_links,
    sisters_of,
    sisters_of_ranks,
    traffic_of,
)
from presim.cost.collectives.hierarchical import Hierarchical
from presim.cost.collectives.network_model import Transfer
from presim.cost.price import Price
from presim.hardware import Cluster
from presim.hardware.network.sharing import LinkTraffic, shared_seconds
from presim.trace.collective import Collective
from presim.trace.schema import Group

NAME = "flow/contended"
ANALYTIC = Hierarchical.name
BY_LINK = "link/contended"  # flows counted by link
TOO_MANY = "analytic/hierarchical, of too many flows to simulate"
TELLING = 0.001  # of the time alone; a smaller slowdown counts as no sharing
_UNCERTAIN = 0.1  # added to the uncertainty if flows determine the time


class Contended:
    """A `NetworkModel` of clusters with a ``[network]`` table."""

    name = NAME

    def __init__(self, base: Hierarchical) -> None:
        """``base`` prices a collective without contention."""
        self._base = base

    def price(self, transfers: Sequence[Transfer], cluster: Cluster) -> list[Price | None]:
        """Prices with contention; None if the network is not described.

        The transfers of a set share the links of the fabric. `presim.cost.overlap` models what they share within
        nodes and at their NICs.
        """
        prices = [self._price_alone(transfer.collective, transfer.group, cluster) for transfer in transfers]
        if len(transfers) < 2 or not cluster.network:
            return prices
        return _price_concurrent(self._base, transfers, prices, cluster)

    def _price_alone(self, collective: Collective, group: Group, cluster: Cluster) -> Price | None:
        if not cluster.network:
            return None
        uncontended = uncontended_price(self._base, collective, group, cluster)
        if not crosses_fabric(collective, group, cluster):
            return uncontended
        sister_groups = sisters_of_ranks(exchanging_ranks(collective, group), cluster.world_size)
        by_link = has_too_many_flows(collective.kind, sister_groups)
        if not can_be_found(collective.kind, sister_groups, cluster):
            return msgspec.structs.replace(
                uncontended, estimator=TOO_MANY, uncertainty=min(uncontended.uncertainty + 0.3, 0.9)
            )
        on_links_s = seconds_on_links(self._base, collective, sister_groups, cluster)
        if on_links_s * 1e9 <= (1 + TELLING) * uncontended.duration_ns:
            return uncontended
        return msgspec.structs.replace(
            uncontended,
            duration_ns=round(on_links_s * 1e9),
            estimator=BY_LINK if by_link else NAME,
            uncertainty=min(uncontended.uncertainty + _UNCERTAIN, 0.9),
            bound="network",
        )


def uncontended_price(base: Hierarchical, collective: Collective, group: Group, cluster: Cluster) -> Price:
    """The price of one group on a fabric that limits nothing."""
    fabric = msgspec.structs.replace(cluster.fabric, oversubscription=1.0)
    return base.alone(collective, group, msgspec.structs.replace(cluster, fabric=fabric))


def _price_concurrent(
    base: Hierarchical, transfers: Sequence[Transfer], prices: list[Price | None], cluster: Cluster
) -> list[Price | None]:
    """Prices of transfers that share links, from the price of each transfer without the others."""
    topology = described_network(cluster)
    indices, loads = [], []
    for index, (transfer, price) in enumerate(zip(transfers, prices, strict=True)):
        groups = _fabric_groups(transfer, cluster)
        if price is None or not groups:
            continue
        traffic = traffic_of(base, transfer.collective, groups, cluster)
        if not traffic.link_bytes.any():
            continue
        alone_s = price.duration_ns * 1e-9
        limit = topology.bandwidth_Bps * alone_s  # a price below the time that the links need is raised to it
        indices.append(index)
        loads.append(LinkTraffic(np.minimum(traffic.link_bytes, limit), traffic.flow_bytes, alone_s))
    shared_prices = list(prices)
    for index, load, shared_s in zip(indices, loads, shared_seconds(topology.bandwidth_Bps, loads), strict=True):
        price = prices[index]
        if price is not None and shared_s > load.alone_s * (1 + TELLING):
            shared_prices[index] = msgspec.structs.replace(
                price, duration_ns=round(shared_s * 1e9), estimator=NAME, bound="network"
            )
    return shared_prices


def _fabric_groups(transfer: Transfer, cluster: Cluster) -> Groups:
    """The groups of a transfer that exchange over the fabric; empty if none does."""
    sister_groups = sisters_of(transfer.collective, transfer.group, cluster)
    if not transfer.running:
        return sister_groups
    running = {rank for ranks in transfer.running for rank in ranks}
    return tuple(ranks for ranks in sister_groups if not running.isdisjoint(ranks))


def contended_note(estimators: list[str]) -> tuple[str, ...]:
    """A note on collectives that were simulated flow by flow; ``estimators`` of all collectives."""
    if not estimators:
        return ()
    flows, too_many, by_link = (estimators.count(name) for name in (NAME, TOO_MANY, BY_LINK))
    note = (
        f"The network is described: {flows} of {len(estimators)} collectives share links and are simulated flow by "
        "flow, the others are analytic. Effects of packets (incast, PFC, ECN, uneven adaptive routing) are left out."
    )
    if by_link:
        note += f" {by_link} of these have more than {MOST_FLOWS:,} flows, which are counted by link."
    omission_note = f"{too_many} of them would have more than {MOST_FLOWS:,} flows, and what they share is left out."
    return (note, omission_note) if too_many else (note,)
