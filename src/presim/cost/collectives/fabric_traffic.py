"""What groups of a collective's kind send over the shared links of a described network while they run at once.

All flows of a collective go on in step. Rates are fair shares for any size, so traffic is found for 1 GiB and scaled.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.cost.collectives.algorithms import DIRECT, SIMPLE
from presim.cost.collectives.collective_constants import exchange_constants, fabric_constants
from presim.cost.collectives.expert_exchange import exchanged_bytes
from presim.cost.collectives.group_placement import layout_of
from presim.cost.collectives.hierarchical import Hierarchical
from presim.cost.overlap import Paths
from presim.hardware import Cluster
from presim.hardware.network.aggregate import all_to_alls
from presim.hardware.network.build_topology import topology_of
from presim.hardware.network.exchange import KINDS, Exchange, flows_of, link_loads, run
from presim.hardware.network.sharing import congestible_links, port_links, shared_links
from presim.hardware.network.topology import Floats, Topology
from presim.system.files import decode_messagepack
from presim.trace.collective import MESSAGES, Collective
from presim.trace.grids import sisters
from presim.trace.schema import Group

Groups = tuple[tuple[int, ...], ...]
MOST_FLOWS = 4_000_000
# Kinds with the flows of another one, and how often these are sent.
_RINGS = {"all_reduce": ("all_gather", 2.0), "reduce_scatter": ("all_gather", 1.0), "recv": ("send", 1.0)}
_SENT = 1 << 30  # bytes of a collective in simulations


@dataclasses.dataclass(frozen=True)
class Traffic:
    """What concurrent groups put on shared links."""

    link_bytes: Floats  # by link; of a port, over the share of its bandwidth that the collective reaches
    flow_bytes: float  # of each flow


def traffic_of(base: Hierarchical, collective: Collective, groups: Groups, cluster: Cluster) -> Traffic:
    """The traffic of groups that exchange at once."""
    kind, size = _flow_kind_and_bytes(base, collective, groups[0], cluster)
    efficiency = _port_efficiency(collective, cluster)
    carried, flow = _on_fabric(_encoded(cluster), kind, groups, efficiency)
    scale = max(size, 0.0) / _SENT
    return Traffic(carried * scale, flow * scale)


def can_be_found(kind: str, groups: Groups, cluster: Cluster) -> bool:
    """Whether the flows of groups are few enough to be found, or can be counted by link."""
    if not has_too_many_flows(kind, groups):
        return True
    return _load_by_link(_encoded(cluster), kind, groups) is not None


@functools.lru_cache(maxsize=4096)
def _on_fabric(cluster_bytes: bytes, kind: str, groups: Groups, port_efficiency: float) -> tuple[Floats, float]:
    """Bytes on each shared link while groups exchange, and bytes of each flow.

    A port counts as full when it carries ``port_efficiency`` of its bandwidth, however many GPUs send over it.
    """
    network = _shared_links(cluster_bytes)
    counted = _load_by_link(cluster_bytes, kind, groups)
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


def crosses_fabric(collective: Collective, group: Group, cluster: Cluster) -> bool:
    """Whether a group's flows leave its node."""
    is_exchange = collective.kind in KINDS and len(group.ranks) > 1
    return is_exchange and len({cluster.domain(rank) for rank in group.ranks}) > 1


def exchanging_ranks(collective: Collective, group: Group) -> tuple[int, ...]:
    """Ranks that exchange data: the whole group, or the two ranks of a message."""
    if collective.kind not in MESSAGES:
        return group.ranks
    peer = collective.peer if 0 <= collective.peer < len(group.ranks) else 1
    return (group.ranks[peer - 1], group.ranks[peer])


def _encoded(cluster: Cluster) -> bytes:
    """A cluster as bytes, which caches compare; `_shared_links` decodes them."""
    return msgspec.msgpack.encode(cluster)


@dataclasses.dataclass(frozen=True)
class _SharedLinks:
    """A described network and its links that several GPUs may use."""

    topology: Topology
    is_shared: NDArray[np.bool_]  # by link: not at a GPU
    is_port: NDArray[np.bool_]  # by link: of a NIC
    is_congestible: NDArray[np.bool_]  # by link: different transfers may want more than it has


@functools.lru_cache(maxsize=4)
def _shared_links(cluster_bytes: bytes) -> _SharedLinks:
    cluster = decode_messagepack(cluster_bytes, Cluster)
    topology = topology_of(cluster, cluster.network)
    return _SharedLinks(topology, shared_links(topology), port_links(topology), congestible_links(topology))


@functools.lru_cache(maxsize=256)
def _ends_s(cluster_bytes: bytes, kind: str, sister_groups: Groups) -> tuple[float, ...]:
    """Ends of exchanges of 1 GiB that start together."""
    if _load_by_link(cluster_bytes, kind, sister_groups) is not None:
        carried, _ = _on_fabric(cluster_bytes, kind, sister_groups, 1.0)
        busiest_s = float((carried / _shared_links(cluster_bytes).topology.bandwidth_Bps).max())
        return (busiest_s,) * len(sister_groups)
    crowded = run(_shared_links(cluster_bytes).topology, [Exchange(kind, _SENT, group) for group in sister_groups])
    assert crowded.shared is not None, "test_contended: at flow level"
    ends_s = np.zeros(len(sister_groups))
    np.maximum.at(ends_s, crowded.flows.owner, crowded.shared.end_s)
    return tuple(ends_s.tolist())


def described_network(cluster: Cluster) -> Topology:
    """The topology of a cluster's ``[network]``, kept for later calls."""
    return _shared_links(_encoded(cluster)).topology


def seconds_on_links(base: Hierarchical, collective: Collective, groups: Groups, cluster: Cluster) -> float:
    """Seconds that the busiest shared link needs for what groups send at once, as all their flows go on in step."""
    link_bytes = traffic_of(base, collective, groups, cluster).link_bytes
    return float((link_bytes / described_network(cluster).bandwidth_Bps).max(initial=0.0))


def bytes_on_links(
    collective: Collective, groups: Groups, cluster: Cluster, topology: Topology, nccl: Mapping[str, str]
) -> Floats:
    """Bytes that a collective of some groups puts on each link of a network, links within nodes included."""
    if not groups:
        return np.zeros(topology.links)
    kind, size = collective.kind, float(collective.even.bytes)
    if crosses_fabric(collective, Group("", groups[0], len(groups[0])), cluster):
        kind, size = _flow_kind_and_bytes(Hierarchical(nccl), collective, groups[0], cluster)
    carried, _ = link_loads(topology, [Exchange(kind, _SENT, group) for group in groups])
    return carried * (max(size, 0.0) / _SENT)


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
def _load_by_link(cluster_bytes: bytes, kind: str, sister_groups: Groups) -> Floats | None:
    """The load of an all-to-all with too many flows to simulate; None for all other collectives."""
    if not has_too_many_flows(kind, sister_groups) or kind != "all_to_all":
        return None
    return all_to_alls(_shared_links(cluster_bytes).topology, sister_groups)


def paths_of(base: Hierarchical, collective: Collective, groups: Groups, cluster: Cluster) -> tuple[Paths | None, int]:
    """The congestible links that concurrent groups cross, and the bytes of each flow."""
    kind, size = _flow_kind_and_bytes(base, collective, groups[0], cluster)
    port_efficiency = _port_efficiency(collective, cluster)
    paths, flow = _paths(_encoded(cluster), kind, groups, port_efficiency)
    return paths, round(size * flow / _SENT)


@functools.lru_cache(maxsize=4096)
def _paths(cluster_bytes: bytes, kind: str, groups: Groups, port_efficiency: float) -> tuple[Paths | None, float]:
    network = _shared_links(cluster_bytes)
    carried, flow = _on_fabric(cluster_bytes, kind, groups, port_efficiency)
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
    ends_s = _ends_s(_encoded(cluster), kind, sister_groups)
    return dict(zip(sister_groups, ends_s, strict=True))


def sisters_of(collective: Collective, group: Group, cluster: Cluster) -> Groups:
    """All groups of a collective's kind; none where nothing is simulated."""
    if not cluster.network or not crosses_fabric(collective, group, cluster):
        return ()
    sister_groups = sisters_of_ranks(exchanging_ranks(collective, group), cluster.world_size)
    return sister_groups if can_be_found(collective.kind, sister_groups, cluster) else ()


@functools.lru_cache(maxsize=1024)
def sisters_of_ranks(ranks: tuple[int, ...], world_size: int) -> Groups:
    """All groups of the kind of these ranks."""
    return tuple(sisters(ranks, world_size)) if len(ranks) > 1 else (ranks,)


def has_too_many_flows(kind: str, sister_groups: Groups) -> bool:
    """Whether groups have more flows than are found one by one."""
    return sum(flows_of(kind, len(group)) for group in sister_groups) > MOST_FLOWS
