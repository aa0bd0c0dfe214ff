"""Collectives of a cluster whose network is described: flow by flow where groups share links, analytic elsewhere.

All groups of one kind (the sisters of a group: its translations over the world) do the same at the same time. Their
flows are simulated together on the described network, and once more for one group on a fabric that limits nothing. What
the first takes longer is added to the white-box model's time, which knows protocols and what NCCL reaches of a wire.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.cost.collectives.experts import moved
from presim.cost.collectives.hierarchical import Hierarchical
from presim.cost.collectives.model import Transfer
from presim.cost.collectives.placement import layout_of
from presim.cost.overlap import Paths
from presim.cost.price import Price
from presim.hardware import Cluster
from presim.network.aggregate import Spread, all_to_alls
from presim.network.describe import topology_of
from presim.network.exchange import KINDS, Exchange, flows_of, link_loads, run
from presim.network.sharing import Load, crowdable, shared_seconds
from presim.network.topology import Floats, Topology
from presim.trace.collective import MESSAGES, Collective
from presim.trace.grids import sisters
from presim.trace.schema import Group

NAME = "flow/contended"
ANALYTIC = Hierarchical.name
BY_LINK = "link/contended"  # flows counted by link
TOO_MANY = "analytic/hierarchical, of too many flows to simulate"
_MOST_FLOWS = 4_000_000
# Kinds with the flows of another one, and how often these are sent.
_RINGS = {"all_reduce": ("all_gather", 2.0), "reduce_scatter": ("all_gather", 1.0), "recv": ("send", 1.0)}
_SENT = 1 << 30  # bytes that flows are simulated with
TELLING = 0.001  # of the time alone; a smaller slowdown counts as no sharing
_UNCERTAIN = 0.1  # added to the uncertainty if flows determine the time


Groups = tuple[tuple[int, ...], ...]


class Contended:
    """A `NetworkModel` of clusters with a ``[network]`` table."""

    name = NAME

    def __init__(self, base: Hierarchical) -> None:
        """``base`` knows what a collective takes alone."""
        self._base = base

    def price(self, transfers: Sequence[Transfer], cluster: Cluster) -> list[Price | None]:
        """Prices with contention; None if the network is not described.

        The transfers of a set share the links of the fabric. What they share within nodes and at their NICs is
        `presim.cost.overlap`'s to say.
        """
        prices = [self._alone(one.collective, one.group, cluster) for one in transfers]
        if len(transfers) < 2 or not cluster.network:
            return prices
        return _beside_each_other(transfers, prices, cluster)

    def _alone(self, collective: Collective, group: Group, cluster: Cluster) -> Price | None:
        if not cluster.network:
            return None
        fabric = msgspec.structs.replace(cluster.fabric, oversubscription=1.0)
        alone = self._base.alone(collective, group, msgspec.structs.replace(cluster, fabric=fabric))
        if collective.kind not in KINDS or len(group.ranks) < 2:
            return alone
        if len({cluster.domain(rank) for rank in group.ranks}) == 1:
            return alone
        ranks = ends(collective, group)
        together = _sisters(ranks, cluster.world_size)
        by_link = _is_too_much(collective.kind, together)
        if by_link and _by_link(_key(cluster), _Held(cluster), collective.kind, together) is None:
            return msgspec.structs.replace(alone, estimator=TOO_MANY, uncertainty=min(alone.uncertainty + 0.3, 0.9))
        more = exchange_s(collective, ranks, together, cluster)
        if more * 1e9 <= TELLING * alone.duration_ns:
            return alone
        return msgspec.structs.replace(
            alone,
            duration_ns=alone.duration_ns + round(more * 1e9),
            estimator=BY_LINK if by_link else NAME,
            uncertainty=min(alone.uncertainty + _UNCERTAIN, 0.9),
            bound="network",
        )


def _beside_each_other(
    transfers: Sequence[Transfer], prices: list[Price | None], cluster: Cluster
) -> list[Price | None]:
    """Prices of transfers that share links, from what each takes alone."""
    key, topology = described_network(cluster)
    places, loads = [], []
    for place, (transfer, price) in enumerate(zip(transfers, prices, strict=True)):
        groups = _exchanging(transfer, cluster)
        if price is None or not groups:
            continue
        kind, size = _sent(transfer.collective, groups[0], cluster)
        carried, flow = _on_fabric(key, _Held(cluster), kind, groups)
        if not carried.any():
            continue
        scale, alone_s = size / _SENT, price.duration_ns * 1e-9
        if scale <= 0:
            continue
        limit = topology.bandwidth_Bps * alone_s  # a price below what the links allow counts as that
        places.append(place)
        loads.append(Load(np.minimum(carried * scale, limit), flow * scale, alone_s))
    found = list(prices)
    for place, load, took_s in zip(places, loads, shared_seconds(topology.bandwidth_Bps, loads), strict=True):
        price = prices[place]
        if price is not None and took_s > load.alone_s * (1 + TELLING):
            found[place] = msgspec.structs.replace(
                price, duration_ns=round(took_s * 1e9), estimator=NAME, bound="network"
            )
    return found


def _exchanging(transfer: Transfer, cluster: Cluster) -> Groups:
    """The groups of a transfer that exchange over the fabric; none where none does."""
    together = sisters_of(transfer.collective, transfer.group, cluster)
    if not transfer.running:
        return together
    running = {rank for ranks in transfer.running for rank in ranks}
    return tuple(ranks for ranks in together if not running.isdisjoint(ranks))


@functools.lru_cache(maxsize=256)
def _on_fabric(key: bytes, held: _Held, kind: str, groups: Groups) -> tuple[Floats, float]:
    """Bytes on each link of the fabric while groups exchange, and bytes of each flow."""
    topology = _topologies(key, held)[0]
    if (spread := _by_link(key, held, kind, groups)) is not None:
        return spread.carried * (_SENT / len(groups[0])), _SENT / len(groups[0])
    carried, flow = link_loads(topology, [Exchange(kind, _SENT, each) for each in groups])
    return np.where(topology.within_nodes(), 0.0, carried), flow


def contended_note(estimators: list[str]) -> tuple[str, ...]:
    """A note on collectives that were simulated flow by flow; ``estimators`` of all collectives."""
    if not estimators:
        return ()
    flows, left, by_link = (estimators.count(name) for name in (NAME, TOO_MANY, BY_LINK))
    said = (
        f"The network is described: {flows} of {len(estimators)} collectives share links and are simulated flow by "
        "flow, the others are analytic."
    )
    if by_link:
        said += f" {by_link} of these have more than {_MOST_FLOWS:,} flows, which are counted by link."
    more = f"{left} of them would have more than {_MOST_FLOWS:,} flows, and what they share is left out."
    return (said, more) if left else (said,)


def ends(collective: Collective, group: Group) -> tuple[int, ...]:
    """Who exchanges: the whole group, or two neighbours of it."""
    if collective.kind not in MESSAGES:
        return group.ranks
    peer = collective.peer if 0 <= collective.peer < len(group.ranks) else 1
    return (group.ranks[peer - 1], group.ranks[peer])


class _Held:
    """A cluster that counts as nothing in a cache's key: its own key stands beside it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held)

    def __hash__(self) -> int:
        return 0


def _key(cluster: Cluster) -> bytes:
    return msgspec.json.encode(cluster)


@functools.lru_cache(maxsize=4)
def _topologies(key: bytes, held: _Held) -> tuple[Topology, Topology]:
    network = held.cluster.network
    topology = topology_of(held.cluster, network)
    whole = topology_of(held.cluster, {**network, "failed": ()}) if network.get("failed") else topology
    return topology, whole.without_fabric()


@functools.lru_cache(maxsize=4096)
def _longer_s(key: bytes, held: _Held, kind: str, ranks: tuple[int, ...], together: Groups) -> float:
    """For each byte, what all sisters together take longer than one of them on a fabric that limits nothing.

    Rates are fair shares, whatever is sent: where all flows start together, times are in proportion to the bytes.
    """
    _, free = _topologies(key, held)
    own = next((at for at, each in enumerate(together) if set(each) == set(ranks)), 0)
    if (spread := _by_link(key, held, kind, together)) is not None:
        return max(0.0, spread.seconds - float(spread.ports_s[own])) / len(together[own])
    alone = run(free, [Exchange(kind, _SENT, together[own])])
    assert alone.shared is not None, "test_contended: at flow level"
    return max(0.0, _together(key, held, kind, together)[0][own] - alone.shared.seconds) / _SENT


@functools.lru_cache(maxsize=256)
def _together(key: bytes, held: _Held, kind: str, together: Groups) -> tuple[tuple[float, ...], Floats, float]:
    """When each of the exchanges is over that start together, what each link carried, and the bytes of a flow."""
    topology, _ = _topologies(key, held)
    if (spread := _by_link(key, held, kind, together)) is not None:
        size = _SENT / len(together[0])
        return (spread.seconds * size,) * len(together), spread.carried * size, size
    crowded = run(topology, [Exchange(kind, _SENT, each) for each in together])
    assert crowded.shared is not None, "test_contended: at flow level"
    ends = np.zeros(len(together))
    np.maximum.at(ends, crowded.flows.owner, crowded.shared.end_s)
    return tuple(ends.tolist()), crowded.shared.link_bytes, float(crowded.flows.bytes.max(initial=0.0))


def described_network(cluster: Cluster) -> tuple[bytes, Topology]:
    """A cluster's key and the topology of its ``[network]``, which is made once."""
    key = _key(cluster)
    return key, _topologies(key, _Held(cluster))[0]


def exchange_s(collective: Collective, own: tuple[int, ...], groups: Groups, cluster: Cluster) -> float:
    """What one of the groups takes longer while all of them exchange than alone on a fabric that limits nothing."""
    kind, size = _sent(collective, own, cluster)
    return size * _longer_s(_key(cluster), _Held(cluster), kind, own, groups)


def _sent(collective: Collective, ranks: tuple[int, ...], cluster: Cluster) -> tuple[str, float]:
    """The kind of flows of a collective, and its bytes as `Exchange` counts them."""
    if collective.routed is not None:
        layout = layout_of(collective, Group("", ranks, len(ranks)), cluster)
        return collective.kind, moved(collective.routed, layout).far
    kind, times = _RINGS.get(collective.kind, (collective.kind, 1.0))
    return kind, collective.even.bytes * times


@functools.lru_cache(maxsize=64)
def _by_link(key: bytes, held: _Held, kind: str, together: Groups) -> Spread | None:
    """The load of an all-to-all of too many flows to simulate; None: of no other collective."""
    if not _is_too_much(kind, together) or kind != "all_to_all":
        return None
    return all_to_alls(_topologies(key, held)[0], together)


def paths_of(collective: Collective, groups: Groups, cluster: Cluster) -> tuple[Paths | None, int]:
    """The links that groups cross which exchange at once, of those that can be crowded, and the bytes of each flow."""
    kind, size = _sent(collective, groups[0], cluster)
    paths, flow = _paths(_key(cluster), _Held(cluster), kind, groups)
    return paths, round(size * flow / _SENT)


@functools.lru_cache(maxsize=4096)
def _paths(key: bytes, held: _Held, kind: str, groups: Groups) -> tuple[Paths | None, float]:
    topology = _topologies(key, held)[0]
    _, carried, flow = _together(key, held, kind, groups)
    links = np.flatnonzero((carried > 0) & _crowdable(key, held))
    if not len(links):
        return None, flow
    flows = carried[links] / flow / (topology.bandwidth_Bps[links] * 1e-9)
    return Paths(tuple(links.tolist()), tuple(flows.tolist())), flow


@functools.lru_cache(maxsize=4)
def _crowdable(key: bytes, held: _Held) -> NDArray[np.bool_]:
    return crowdable(_topologies(key, held)[0])


def seconds_of_sisters(collective: Collective, group: Group, cluster: Cluster) -> dict[tuple[int, ...], float]:
    """By group of the same kind, how long it takes to send 1 GiB while all of them do; empty where none is simulated.

    Groups that wait for a slow link differ from the others.
    """
    together = sisters_of(collective, group, cluster)
    if not together:
        return {}
    kind, _ = _sent(collective, together[0], cluster)
    return dict(zip(together, _together(_key(cluster), _Held(cluster), kind, together)[0]))


def sisters_of(collective: Collective, group: Group, cluster: Cluster) -> Groups:
    """All groups of a collective's kind; none where nothing is simulated."""
    if not cluster.network or collective.kind not in KINDS or len(group.ranks) < 2:
        return ()
    if len({cluster.domain(rank) for rank in group.ranks}) == 1:
        return ()
    together = _sisters(ends(collective, group), cluster.world_size)
    if not _is_too_much(collective.kind, together):
        return together
    return together if _by_link(_key(cluster), _Held(cluster), collective.kind, together) is not None else ()


@functools.lru_cache(maxsize=1024)
def _sisters(ranks: tuple[int, ...], world_size: int) -> Groups:
    return tuple(sisters(ranks, world_size)) if len(ranks) > 1 else (ranks,)


def _is_too_much(kind: str, together: Groups) -> bool:
    return sum(flows_of(kind, len(each)) for each in together) > _MOST_FLOWS
