"""Traffic of priced collectives on the links of a described network, for the engine to share over time.

A price assumes that all groups of a kind exchange at once. This module replaces it by the price of the groups that one
simulated rank represents (`presim.cost.collectives.running`). The engine models contention between transfers that run
at the same time (`presim.engine.links`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import msgspec

from presim.cost.collectives.contended import (
    ANALYTIC,
    BY_LINK,
    NAME,
    TELLING,
    contended_note,
    uncontended_price,
)
from presim.cost.collectives.expert_exchange import NAME as EXPERTS
from presim.cost.collectives.fabric_traffic import paths_of, seconds_on_links, sisters_of
from presim.cost.collectives.hierarchical import Hierarchical
from presim.cost.collectives.running import concurrent_groups, sent_by_others
from presim.cost.overlap import Flows
from presim.cost.price import OnFabric, Price, PricedTrace
from presim.cost.resource_demand import demand
from presim.hardware import Cluster
from presim.hardware.network.unused_keys import unused_keys_note
from presim.trace.collective import MESSAGES, Collective
from presim.trace.representatives import Representatives
from presim.trace.schema import Group
from presim.trace.signatures import Signature


def on_fabric(priced: PricedTrace, cluster: Cluster, representatives: Representatives) -> PricedTrace:
    """The trace with its collectives' traffic by link, and with prices of the groups that its rank represents.

    Args:
        priced: of one simulated rank; it may have been priced with other representatives before.
        cluster: with a ``[network]`` table; without one nothing changes.
        representatives: the simulated ranks, and the ranks that they represent.
    """
    manifest = priced.trace.manifest
    if not cluster.network or manifest.measured is not None:
        return priced
    before = priced.fabric
    prices, flows, together_ns, crowding = [], [], [], []
    demands = list(priced.demands)
    for index, (signature, price) in enumerate(zip(priced.trace.signatures, priced.prices, strict=True)):
        full_price = msgspec.structs.replace(price, duration_ns=before.together_ns[index]) if before else price
        share = before.crowding[index] if before else None
        answer = _place_on_fabric(
            signature, full_price, share, manifest.groups, manifest.rank, cluster, representatives, manifest.nccl
        )
        prices.append(answer.price)
        if demands and answer.uncrowded.duration_ns != price.duration_ns:
            demands[index] = demand(signature, answer.uncrowded, manifest.groups, cluster, manifest.nccl)
        flows.append(answer.flows)
        together_ns.append(full_price.duration_ns)
        crowding.append(answer.share)
    fabric = OnFabric(tuple(flows), tuple(together_ns), tuple(crowding))
    notes = contended_note(
        [
            price.estimator
            for signature, price in zip(priced.trace.signatures, prices)
            if isinstance(signature, Collective)
        ]
    )
    if unused_note := unused_keys_note(cluster):
        notes = (*notes, unused_note)
    return dataclasses.replace(priced, prices=tuple(prices), demands=tuple(demands), notes=notes, fabric=fabric)


@dataclasses.dataclass(frozen=True)
class FabricTime:
    """One signature on the fabric."""

    price: Price
    flows: Flows | None
    share: float  # share of the price that is contention between groups of the same kind
    uncrowded: Price  # on a fabric that limits nothing; what the work demands of its GPU follows from it


def one_on_fabric(
    signature: Signature,
    price: Price,
    groups: tuple[Group, ...],
    rank: int,
    cluster: Cluster,
    representatives: Representatives,
    nccl: Mapping[str, str],
) -> FabricTime:
    """One signature of a rank; ``price``: as if all groups of its kind exchanged at once."""
    return _place_on_fabric(signature, price, None, groups, rank, cluster, representatives, nccl)


def _place_on_fabric(
    signature: Signature,
    price: Price,
    share: float | None,
    groups: tuple[Group, ...],
    rank: int,
    cluster: Cluster,
    representatives: Representatives,
    nccl: Mapping[str, str],
) -> FabricTime:
    nothing = FabricTime(price, None, 0.0, price)
    if not isinstance(signature, Collective) or not 0 <= signature.group < len(groups):
        return nothing
    group = groups[signature.group]
    everyone = sisters_of(signature, group, cluster)
    if not everyone:
        return nothing
    running = concurrent_groups(signature, group, rank, cluster.world_size, representatives)
    if not running:
        return nothing
    base = Hierarchical(nccl)
    everyone_s = seconds_on_links(base, signature, everyone, cluster)
    if share is None:
        share = _crowding(base, signature, price, group, cluster)
    running_s = seconds_on_links(base, signature, running, cluster)
    uncrowded = msgspec.structs.replace(price, duration_ns=round(price.duration_ns * (1 - share)))
    price = _of_running(signature, price, share, everyone_s, running_s)
    paths, flow_bytes = paths_of(base, signature, running, cluster)
    if paths is None or sent_by_others(signature, group, representatives):
        return FabricTime(price, None, share, uncrowded)
    stretch = max(1.0, price.duration_ns / max(uncrowded.duration_ns, 1))
    return FabricTime(price, Flows(flow_bytes, paths, stretch), share, uncrowded)


def _crowding(base: Hierarchical, signature: Collective, price: Price, group: Group, cluster: Cluster) -> float:
    """The share of a price that is contention between groups of the same kind."""
    if price.estimator not in (NAME, BY_LINK):
        return 0.0
    uncontended = uncontended_price(base, signature, group, cluster)
    return max(0.0, 1 - uncontended.duration_ns / max(price.duration_ns, 1))


def _of_running(signature: Collective, price: Price, share: float, everyone_s: float, running_s: float) -> Price:
    """The price where only some groups exchange, from the seconds that all and that these take on the links."""
    plain = EXPERTS if signature.routed is not None else ANALYTIC
    if price.estimator not in (NAME, BY_LINK, plain) or (share == 0 and signature.kind not in MESSAGES):
        return price
    crowded_ns = price.duration_ns * (running_s / everyone_s) if share else running_s * 1e9
    alone_ns = price.duration_ns * (1 - share)
    if crowded_ns <= (1 + TELLING) * alone_ns:
        return msgspec.structs.replace(price, duration_ns=round(alone_ns), estimator=plain)
    estimator = BY_LINK if price.estimator == BY_LINK else NAME
    return msgspec.structs.replace(price, duration_ns=round(crowded_ns), estimator=estimator, bound="network")
