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

from presim.cost.collectives.experts import exchanged_bytes
from presim.cost.collectives.hierarchical import Hierarchical
from presim.cost.collectives.model import Transfer
from presim.cost.collectives.placement import layout_of
from presim.cost.overlap import Paths
from presim.cost.price import Price
from presim.hardware import Cluster
from presim.network.aggregate import Spread, all_to_alls
from presim.network.describe import topology_of
from presim.network.exchange import KINDS, Exchange, flows_of, link_loads, run
from presim.network.sharing import Load, congestible_links, shared_seconds
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
_SENT = 1 << 30  # bytes of a collective in simulations
TELLING = 0.001  # of the time alone; a smaller slowdown counts as no sharing
_UNCERTAIN = 0.1  # added to the uncertainty if flows determine the time


Groups = tuple[tuple[int, ...], ...]


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
        return _price_concurrent(transfers, prices, cluster)

    def _price_alone(self, collective: Collective, group: Group, cluster: Cluster) -> Price | None:
        if not cluster.network:
            return None
        fabric = msgspec.structs.replace(cluster.fabric, oversubscription=1.0)
        uncontended = self._base.alone(collective, group, msgspec.structs.replace(cluster, fabric=fabric))
        if collective.kind not in KINDS or len(group.ranks) < 2:
            return uncontended
        if len({cluster.domain(rank) for rank in group.ranks}) == 1:
            return uncontended
        ranks = exchanging_ranks(collective, group)
        sister_groups = _sisters(ranks, cluster.world_size)
        by_link = _has_too_many_flows(collective.kind, sister_groups)
        if (
            by_link
            and _load_by_link(_cluster_key(cluster), _ClusterRef(cluster), collective.kind, sister_groups) is None
        ):
            return msgspec.structs.replace(
                uncontended, estimator=TOO_MANY, uncertainty=min(uncontended.uncertainty + 0.3, 0.9)
            )
        contention_s = exchange_s(collective, ranks, sister_groups, cluster)
        if contention_s * 1e9 <= TELLING * uncontended.duration_ns:
            return uncontended
        return msgspec.structs.replace(
            uncontended,
            duration_ns=uncontended.duration_ns + round(contention_s * 1e9),
            estimator=BY_LINK if by_link else NAME,
            uncertainty=min(uncontended.uncertainty + _UNCERTAIN, 0.9),
            bound="network",
        )


def _price_concurrent(
    transfers: Sequence[Transfer], prices: list[Price | None], cluster: Cluster
) -> list[Price | None]:
    """Prices of transfers that share links, from the price of each transfer without the others."""
    key, topology = described_network(cluster)
    indices, loads = [], []
    for index, (transfer, price) in enumerate(zip(transfers, prices, strict=True)):
        groups = _fabric_groups(transfer, cluster)
        if price is None or not groups:
            continue
        kind, size = _flow_kind_and_bytes(transfer.collective, groups[0], cluster)
        carried, flow = _on_fabric(key, _ClusterRef(cluster), kind, groups)
        if not carried.any():
            continue
        scale, alone_s = size / _SENT, price.duration_ns * 1e-9
        if scale <= 0:
            continue
        limit = topology.bandwidth_Bps * alone_s  # a price below the time that the links need is raised to it
        indices.append(index)
        loads.append(Load(np.minimum(carried * scale, limit), flow * scale, alone_s))
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


@functools.lru_cache(maxsize=256)
def _on_fabric(key: bytes, cluster_ref: _ClusterRef, kind: str, groups: Groups) -> tuple[Floats, float]:
    """Bytes on each link of the fabric while groups exchange, and bytes of each flow."""
    topology = _topologies(key, cluster_ref)[0]
    if (spread := _load_by_link(key, cluster_ref, kind, groups)) is not None:
        return spread.carried * (_SENT / len(groups[0])), _SENT / len(groups[0])
    carried, flow = link_loads(topology, [Exchange(kind, _SENT, group) for group in groups])
    return np.where(topology.within_nodes(), 0.0, carried), flow


def contended_note(estimators: list[str]) -> tuple[str, ...]:
    """A note on collectives that were simulated flow by flow; ``estimators`` of all collectives."""
    if not estimators:
        return ()
    flows, too_many, by_link = (estimators.count(name) for name in (NAME, TOO_MANY, BY_LINK))
    note = (
        f"The network is described: {flows} of {len(estimators)} collectives share links and are simulated flow by "
        "flow, the others are analytic."
    )
    if by_link:
        note += f" {by_link} of these have more than {_MOST_FLOWS:,} flows, which are counted by link."
    omission_note = f"{too_many} of them would have more than {_MOST_FLOWS:,} flows, and what they share is left out."
    return (note, omission_note) if too_many else (note,)


def exchanging_ranks(collective: Collective, group: Group) -> tuple[int, ...]:
    """Ranks that exchange data: the whole group, or the two ranks of a message."""
    if collective.kind not in MESSAGES:
        return group.ranks
    peer = collective.peer if 0 <= collective.peer < len(group.ranks) else 1
    return (group.ranks[peer - 1], group.ranks[peer])


class _ClusterRef:
    """A cluster that a cache ignores in its key: all are equal. The call's argument ``key`` identifies the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ClusterRef)

    def __hash__(self) -> int:
        return 0


def _cluster_key(cluster: Cluster) -> bytes:
    return msgspec.json.encode(cluster)


@functools.lru_cache(maxsize=4)
def _topologies(key: bytes, cluster_ref: _ClusterRef) -> tuple[Topology, Topology]:
    network = cluster_ref.cluster.network
    topology = topology_of(cluster_ref.cluster, network)
    intact = topology_of(cluster_ref.cluster, {**network, "failed": ()}) if network.get("failed") else topology
    return topology, intact.without_fabric()


@functools.lru_cache(maxsize=4096)
def _contention_s_per_byte(
    key: bytes, cluster_ref: _ClusterRef, kind: str, ranks: tuple[int, ...], sister_groups: Groups
) -> float:
    """Extra seconds per byte while all sister groups exchange, relative to one group on a fabric without limits.

    Rates are fair shares for any size. Where all flows start together, times are proportional to the bytes.
    """
    _, free = _topologies(key, cluster_ref)
    group_index = next((index for index, group in enumerate(sister_groups) if set(group) == set(ranks)), 0)
    if (spread := _load_by_link(key, cluster_ref, kind, sister_groups)) is not None:
        return max(0.0, spread.seconds - float(spread.ports_s[group_index])) / len(sister_groups[group_index])
    uncontended = run(free, [Exchange(kind, _SENT, sister_groups[group_index])])
    assert uncontended.shared is not None, "test_contended: at flow level"
    return (
        max(0.0, _exchange_together(key, cluster_ref, kind, sister_groups)[0][group_index] - uncontended.shared.seconds)
        / _SENT
    )


@functools.lru_cache(maxsize=256)
def _exchange_together(
    key: bytes, cluster_ref: _ClusterRef, kind: str, sister_groups: Groups
) -> tuple[tuple[float, ...], Floats, float]:
    """Ends of exchanges that start together, bytes carried by each link, and the bytes of the largest flow."""
    topology, _ = _topologies(key, cluster_ref)
    if (spread := _load_by_link(key, cluster_ref, kind, sister_groups)) is not None:
        size = _SENT / len(sister_groups[0])
        return (spread.seconds * size,) * len(sister_groups), spread.carried * size, size
    crowded = run(topology, [Exchange(kind, _SENT, group) for group in sister_groups])
    assert crowded.shared is not None, "test_contended: at flow level"
    ends_s = np.zeros(len(sister_groups))
    np.maximum.at(ends_s, crowded.flows.owner, crowded.shared.end_s)
    return tuple(ends_s.tolist()), crowded.shared.link_bytes, float(crowded.flows.bytes.max(initial=0.0))


def described_network(cluster: Cluster) -> tuple[bytes, Topology]:
    """A cluster's key and the cached topology of its ``[network]``."""
    key = _cluster_key(cluster)
    return key, _topologies(key, _ClusterRef(cluster))[0]


def exchange_s(collective: Collective, ranks: tuple[int, ...], groups: Groups, cluster: Cluster) -> float:
    """Extra seconds of one group while all groups exchange, relative to one group on a fabric without limits."""
    kind, size = _flow_kind_and_bytes(collective, ranks, cluster)
    return size * _contention_s_per_byte(_cluster_key(cluster), _ClusterRef(cluster), kind, ranks, groups)


def _flow_kind_and_bytes(collective: Collective, ranks: tuple[int, ...], cluster: Cluster) -> tuple[str, float]:
    """The kind of flows of a collective, and its bytes as `Exchange` counts them."""
    if collective.routed is not None:
        layout = layout_of(collective, Group("", ranks, len(ranks)), cluster)
        return collective.kind, exchanged_bytes(collective.routed, layout).port_bytes
    kind, times = _RINGS.get(collective.kind, (collective.kind, 1.0))
    return kind, collective.even.bytes * times


@functools.lru_cache(maxsize=64)
def _load_by_link(key: bytes, cluster_ref: _ClusterRef, kind: str, sister_groups: Groups) -> Spread | None:
    """The load of an all-to-all with too many flows to simulate; None for all other collectives."""
    if not _has_too_many_flows(kind, sister_groups) or kind != "all_to_all":
        return None
    return all_to_alls(_topologies(key, cluster_ref)[0], sister_groups)


def paths_of(collective: Collective, groups: Groups, cluster: Cluster) -> tuple[Paths | None, int]:
    """The congestible links that concurrent groups cross, and the bytes of each flow."""
    kind, size = _flow_kind_and_bytes(collective, groups[0], cluster)
    paths, flow = _paths(_cluster_key(cluster), _ClusterRef(cluster), kind, groups)
    return paths, round(size * flow / _SENT)


@functools.lru_cache(maxsize=4096)
def _paths(key: bytes, cluster_ref: _ClusterRef, kind: str, groups: Groups) -> tuple[Paths | None, float]:
    topology = _topologies(key, cluster_ref)[0]
    _, carried, flow = _exchange_together(key, cluster_ref, kind, groups)
    links = np.flatnonzero((carried > 0) & _congestible_links(key, cluster_ref))
    if not len(links):
        return None, flow
    flows = carried[links] / flow / (topology.bandwidth_Bps[links] * 1e-9)
    return Paths(tuple(links.tolist()), tuple(flows.tolist())), flow


@functools.lru_cache(maxsize=4)
def _congestible_links(key: bytes, cluster_ref: _ClusterRef) -> NDArray[np.bool_]:
    return congestible_links(_topologies(key, cluster_ref)[0])


def seconds_of_sisters(collective: Collective, group: Group, cluster: Cluster) -> dict[tuple[int, ...], float]:
    """By sister group, seconds to send 1 GiB while all sister groups send; empty if no group is simulated.

    Groups that wait for a slow link differ from the others.
    """
    sister_groups = sisters_of(collective, group, cluster)
    if not sister_groups:
        return {}
    kind, _ = _flow_kind_and_bytes(collective, sister_groups[0], cluster)
    return dict(
        zip(sister_groups, _exchange_together(_cluster_key(cluster), _ClusterRef(cluster), kind, sister_groups)[0])
    )


def sisters_of(collective: Collective, group: Group, cluster: Cluster) -> Groups:
    """All groups of a collective's kind; none where nothing is simulated."""
    if not cluster.network or collective.kind not in KINDS or len(group.ranks) < 2:
        return ()
    if len({cluster.domain(rank) for rank in group.ranks}) == 1:
        return ()
    sister_groups = _sisters(exchanging_ranks(collective, group), cluster.world_size)
    if not _has_too_many_flows(collective.kind, sister_groups):
        return sister_groups
    return (
        sister_groups
        if _load_by_link(_cluster_key(cluster), _ClusterRef(cluster), collective.kind, sister_groups) is not None
        else ()
    )


@functools.lru_cache(maxsize=1024)
def _sisters(ranks: tuple[int, ...], world_size: int) -> Groups:
    return tuple(sisters(ranks, world_size)) if len(ranks) > 1 else (ranks,)


def _has_too_many_flows(kind: str, sister_groups: Groups) -> bool:
    return sum(flows_of(kind, len(group)) for group in sister_groups) > _MOST_FLOWS
