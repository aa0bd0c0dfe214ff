"""Collectives of a cluster whose network is described: flow by flow where groups share links, analytic elsewhere.

All groups of one kind (the sisters of a group: its translations over the world) do the same at the same time. Their
flows go on in step, so together they take what the busiest link that they share needs for their bytes, or the white-box
model's time of one group, if that is longer. The engine uses the same links and rule for transfers of different groups,
so the time does not depend on which ranks are simulated.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.cost.collectives.algorithms import DIRECT, SIMPLE
from presim.cost.collectives.constants import exchange_constants, fabric_constants
from presim.cost.collectives.experts import exchanged_bytes
from presim.cost.collectives.hierarchical import Hierarchical
from presim.cost.collectives.model import Transfer
from presim.cost.collectives.placement import layout_of
from presim.cost.overlap import Paths
from presim.cost.price import Price
from presim.hardware import Cluster
from presim.network.aggregate import all_to_alls
from presim.network.describe import topology_of
from presim.network.exchange import KINDS, Exchange, flows_of, link_loads, run
from presim.network.sharing import Load, congestible_links, port_links, shared_links, shared_seconds
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
        return _price_concurrent(self._base, transfers, prices, cluster)

    def _price_alone(self, collective: Collective, group: Group, cluster: Cluster) -> Price | None:
        if not cluster.network:
            return None
        uncontended = uncontended_price(self._base, collective, group, cluster)
        if not _crosses_fabric(collective, group, cluster):
            return uncontended
        sister_groups = _sisters(exchanging_ranks(collective, group), cluster.world_size)
        by_link = _has_too_many_flows(collective.kind, sister_groups)
        if (
            by_link
            and _load_by_link(_cluster_key(cluster), _ClusterRef(cluster), collective.kind, sister_groups) is None
        ):
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


def _crosses_fabric(collective: Collective, group: Group, cluster: Cluster) -> bool:
    """Whether a group's flows leave its node."""
    is_exchange = collective.kind in KINDS and len(group.ranks) > 1
    return is_exchange and len({cluster.domain(rank) for rank in group.ranks}) > 1


def _price_concurrent(
    base: Hierarchical, transfers: Sequence[Transfer], prices: list[Price | None], cluster: Cluster
) -> list[Price | None]:
    """Prices of transfers that share links, from the price of each transfer without the others."""
    key, topology = described_network(cluster)
    indices, loads = [], []
    for index, (transfer, price) in enumerate(zip(transfers, prices, strict=True)):
        groups = _fabric_groups(transfer, cluster)
        if price is None or not groups:
            continue
        kind, size = _flow_kind_and_bytes(base, transfer.collective, groups[0], cluster)
        port_efficiency = _port_efficiency(transfer.collective, cluster)
        carried, flow = _on_fabric(key, _ClusterRef(cluster), kind, groups, port_efficiency)
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


@functools.lru_cache(maxsize=4096)
def _on_fabric(
    key: bytes, cluster_ref: _ClusterRef, kind: str, groups: Groups, port_efficiency: float
) -> tuple[Floats, float]:
    """Bytes on each shared link while groups exchange, and bytes of each flow.

    A port counts as full when it carries ``port_efficiency`` of its bandwidth, however many GPUs send over it.
    """
    network = _shared_links(key, cluster_ref)
    counted = _load_by_link(key, cluster_ref, kind, groups)
    if counted is None:
        carried, flow = link_loads(network.topology, [Exchange(kind, _SENT, group) for group in groups])
    else:
        flow = _SENT / len(groups[0])
        carried = counted * flow
    carried = np.where(network.is_port, carried / port_efficiency, carried)
    return np.where(network.is_shared, carried, 0.0), flow


def _port_efficiency(collective: Collective, cluster: Cluster) -> float:
    """Share of its ports' bandwidth that a large collective reaches, as in its price."""
    if collective.routed is not None:
        return exchange_constants(collective.routed.library).port_efficiency
    constants = fabric_constants(cluster.fabric.kind, cluster.collectives)
    return constants.direct_efficiency if collective.kind in DIRECT else constants.efficiency[SIMPLE]


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


@dataclasses.dataclass(frozen=True)
class _SharedLinks:
    """A described network and its links that several GPUs may use."""

    topology: Topology
    is_shared: NDArray[np.bool_]  # by link: not at a GPU
    is_port: NDArray[np.bool_]  # by link: of a NIC
    is_congestible: NDArray[np.bool_]  # by link: different transfers may want more than it has


@functools.lru_cache(maxsize=4)
def _shared_links(key: bytes, cluster_ref: _ClusterRef) -> _SharedLinks:
    topology = topology_of(cluster_ref.cluster, cluster_ref.cluster.network)
    return _SharedLinks(topology, shared_links(topology), port_links(topology), congestible_links(topology))


@functools.lru_cache(maxsize=256)
def _ends_s(key: bytes, cluster_ref: _ClusterRef, kind: str, sister_groups: Groups) -> tuple[float, ...]:
    """Ends of exchanges of 1 GiB that start together."""
    if _load_by_link(key, cluster_ref, kind, sister_groups) is not None:
        carried, _ = _on_fabric(key, cluster_ref, kind, sister_groups, 1.0)
        busiest_s = float((carried / _shared_links(key, cluster_ref).topology.bandwidth_Bps).max())
        return (busiest_s,) * len(sister_groups)
    crowded = run(_shared_links(key, cluster_ref).topology, [Exchange(kind, _SENT, group) for group in sister_groups])
    assert crowded.shared is not None, "test_contended: at flow level"
    ends_s = np.zeros(len(sister_groups))
    np.maximum.at(ends_s, crowded.flows.owner, crowded.shared.end_s)
    return tuple(ends_s.tolist())


def described_network(cluster: Cluster) -> tuple[bytes, Topology]:
    """A cluster's key and the cached topology of its ``[network]``."""
    key = _cluster_key(cluster)
    return key, _shared_links(key, _ClusterRef(cluster)).topology


def seconds_on_links(base: Hierarchical, collective: Collective, groups: Groups, cluster: Cluster) -> float:
    """Seconds that the busiest shared link needs for what groups send at once, as all their flows go on in step."""
    kind, size = _flow_kind_and_bytes(base, collective, groups[0], cluster)
    key, cluster_ref = _cluster_key(cluster), _ClusterRef(cluster)
    carried, _ = _on_fabric(key, cluster_ref, kind, groups, _port_efficiency(collective, cluster))
    bandwidth_Bps = _shared_links(key, cluster_ref).topology.bandwidth_Bps
    return size / _SENT * float((carried / bandwidth_Bps).max(initial=0.0))


def _flow_kind_and_bytes(
    base: Hierarchical, collective: Collective, ranks: tuple[int, ...], cluster: Cluster
) -> tuple[str, float]:
    """The kind of flows of a collective, and its bytes as `Exchange` counts them."""
    group = Group("", ranks, len(ranks))
    if collective.routed is not None:
        layout = layout_of(collective, group, cluster)
        return collective.kind, exchanged_bytes(collective.routed, layout).port_bytes
    kind, times = _RINGS.get(collective.kind, (collective.kind, 1.0))
    return kind, collective.even.bytes * times * base.port_traffic(collective, group, cluster)


@functools.lru_cache(maxsize=64)
def _load_by_link(key: bytes, cluster_ref: _ClusterRef, kind: str, sister_groups: Groups) -> Floats | None:
    """The load of an all-to-all with too many flows to simulate; None for all other collectives."""
    if not _has_too_many_flows(kind, sister_groups) or kind != "all_to_all":
        return None
    return all_to_alls(_shared_links(key, cluster_ref).topology, sister_groups)


def paths_of(base: Hierarchical, collective: Collective, groups: Groups, cluster: Cluster) -> tuple[Paths | None, int]:
    """The congestible links that concurrent groups cross, and the bytes of each flow."""
    kind, size = _flow_kind_and_bytes(base, collective, groups[0], cluster)
    port_efficiency = _port_efficiency(collective, cluster)
    paths, flow = _paths(_cluster_key(cluster), _ClusterRef(cluster), kind, groups, port_efficiency)
    return paths, round(size * flow / _SENT)


@functools.lru_cache(maxsize=4096)
def _paths(
    key: bytes, cluster_ref: _ClusterRef, kind: str, groups: Groups, port_efficiency: float
) -> tuple[Paths | None, float]:
    network = _shared_links(key, cluster_ref)
    carried, flow = _on_fabric(key, cluster_ref, kind, groups, port_efficiency)
    links = np.flatnonzero((carried > 0) & network.is_congestible)
    if not len(links):
        return None, flow
    flows = carried[links] / flow / (network.topology.bandwidth_Bps[links] * 1e-9)
    return Paths(tuple(links.tolist()), tuple(flows.tolist())), flow


def seconds_of_sisters(collective: Collective, group: Group, cluster: Cluster) -> dict[tuple[int, ...], float]:
    """By sister group, seconds to send 1 GiB while all sister groups send; empty if no group is simulated.

    Groups that wait for a slow link differ from the others.
    """
    sister_groups = sisters_of(collective, group, cluster)
    if not sister_groups:
        return {}
    kind, _ = _RINGS.get(collective.kind, (collective.kind, 1.0))
    ends_s = _ends_s(_cluster_key(cluster), _ClusterRef(cluster), kind, sister_groups)
    return dict(zip(sister_groups, ends_s, strict=True))


def sisters_of(collective: Collective, group: Group, cluster: Cluster) -> Groups:
    """All groups of a collective's kind; none where nothing is simulated."""
    if not cluster.network or not _crosses_fabric(collective, group, cluster):
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
