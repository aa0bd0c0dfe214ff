"""Shortest paths of flows through a topology."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from presim.errors import InputError
from presim.hardware.network.flow_kernels import fast
from presim.hardware.network.path_kernels import meet, walk
from presim.hardware.network.topology import Ints, Topology

_FEW_SENDERS = 4  # to a receiver: a search for each receiver sees the whole network, one for each flow little of it
_USUAL_HOPS, _MOST_HOPS = 10, 512


def routes(topology: Topology, senders: Ints, receivers: Ints) -> Ints:
    """Links of a path for each flow, [flow, hop]; -1 beyond its end.

    Raises:
        InputError: two GPUs cannot reach each other, or a rank has no GPU.
    """
    senders, receivers = np.asarray(senders, np.int64), np.asarray(receivers, np.int64)
    highest = int(max(senders.max(initial=-1), receivers.max(initial=-1)))
    if highest >= topology.gpus:
        raise InputError(
            f"rank {highest} communicates, but the network has {topology.gpus} GPUs; give it at least {highest + 1}"
        )
    if topology.relay and topology.gpus_per_node:
        return _relayed_paths(topology, senders, receivers)
    return _shortest_paths(topology, senders, receivers)


def _relayed_paths(topology: Topology, senders: Ints, receivers: Ints) -> Ints:
    """Paths through the GPU of the sender's node on the receiver's rail."""
    per_node = topology.gpus_per_node
    relays = senders // per_node * per_node + receivers % per_node
    is_same_node = senders // per_node == receivers // per_node
    to_relay = _shortest_paths(topology, senders, np.where(is_same_node, receivers, relays))
    from_relay = _shortest_paths(topology, np.where(is_same_node, receivers, relays), receivers)
    hops = np.concatenate([to_relay, from_relay], axis=1)
    order = np.argsort(hops < 0, axis=1, kind="stable")
    hops = np.take_along_axis(hops, order, axis=1)
    return np.ascontiguousarray(hops[:, : max(int((hops >= 0).sum(axis=1).max(initial=0)), 1)])


def _shortest_paths(topology: Topology, senders: Ints, receivers: Ints) -> Ints:
    """Paths of all flows; flows with the same ends have the same path."""
    pairs, flow = np.unique(receivers * topology.gpus + senders, return_inverse=True)
    senders, receivers = pairs % topology.gpus, pairs // topology.gpus
    per_node = max(topology.gpus_per_node, 1)
    is_between_nodes = senders // per_node != receivers // per_node
    by_pair = bool(is_between_nodes.any()) and int(is_between_nodes.sum()) <= _FEW_SENDERS * len(
        np.unique(receivers[is_between_nodes])
    )
    searches = [(is_between_nodes, meet), (~is_between_nodes, walk)] if by_pair else [(np.ones(len(pairs), bool), walk)]
    path_links = np.full((len(pairs), 1), -1, np.int64)
    for selected, search in searches:
        if not selected.any():
            continue
        paths = _search_paths(topology, senders[selected], receivers[selected], search)
        wider = np.full((len(pairs), max(path_links.shape[1], paths.shape[1])), -1, np.int64)
        wider[:, : path_links.shape[1]] = path_links
        wider[selected, : paths.shape[1]] = paths
        path_links = wider
    return np.ascontiguousarray(path_links[flow.reshape(-1)])


def _search_paths(topology: Topology, senders: Ints, receivers: Ints, search: Callable[..., int]) -> Ints:
    """Paths of flows that are ordered by their ends."""
    work = len(senders) * 8 + len(np.unique(receivers)) * topology.links
    compiled: Callable[..., Any] = fast(search, work)
    for hops, through_nics in ((_USUAL_HOPS, False), (_MOST_HOPS, False), (_MOST_HOPS, True)):
        paths = np.full((len(senders), min(hops, len(topology.names))), -1, np.int64)
        adjacency = _adjacency_of(_Same(topology), through_nics)
        stuck = int(compiled(*adjacency, senders, receivers, topology.seed, paths))
        if stuck < 0:
            break
    if stuck >= 0:
        sender, receiver = int(senders[stuck]), int(receivers[stuck])
        raise InputError(
            f"{topology.names[sender]} cannot reach {topology.names[receiver]} in {paths.shape[1]} hops; add a "
            "link between their parts of the network"
        )
    used = max(int((paths >= 0).sum(axis=1).max(initial=0)), 1)
    return paths[:, :used]


class _Same:
    """Cache key: a topology by identity, because arrays have no hash."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.topology is self.topology

    def __hash__(self) -> int:
        return id(self.topology)


@functools.lru_cache(maxsize=8)
def _adjacency_of(same: _Same, through_nics: bool) -> tuple[Ints, ...]:
    """Arrays of the adjacency for `walk`.

    ``through_nics``: GPUs of a node may reach each other through a NIC that they share.
    """
    topology = same.topology
    vertices = len(topology.names)
    passes = np.ones(vertices, np.int64)
    if not through_nics:
        passes[[".nic" in name for name in topology.names]] = 2
    if not topology.transit:
        passes[: topology.gpus] = 0
    out, into = (np.argsort(vertex_by_link, kind="stable") for vertex_by_link in (topology.source, topology.target))
    first_slots = [
        np.searchsorted(vertex_by_link[order], np.arange(vertices + 1)).astype(np.int64)
        for vertex_by_link, order in ((topology.source, out), (topology.target, into))
    ]
    return first_slots[0], out, topology.source, topology.target, passes, first_slots[1], into
