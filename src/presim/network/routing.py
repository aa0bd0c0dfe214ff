"""Shortest paths of flows through a topology."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from presim.errors import InputError
from presim.network.kernels import fast
from presim.network.path_kernels import meet, walk
from presim.network.topology import Ints, Topology

_FEW_SENDERS = 4  # to a receiver: a search for each receiver sees the whole network, one for each flow little of it
_USUAL_HOPS, _MOST_HOPS = 10, 512


def routes(topology: Topology, begins: Ints, ends: Ints) -> Ints:
    """Links of a path for each flow, [flow, hop]; -1 beyond its end.

    Raises:
        InputError: two GPUs cannot reach each other, or a rank has no GPU.
    """
    begins, ends = np.asarray(begins, np.int64), np.asarray(ends, np.int64)
    highest = int(max(begins.max(initial=-1), ends.max(initial=-1)))
    if highest >= topology.gpus:
        raise InputError(
            f"rank {highest} communicates, but the network has {topology.gpus} GPUs; give it at least {highest + 1}"
        )
    if topology.relay and topology.gpus_per_node:
        return _relayed(topology, begins, ends)
    return _shortest(topology, begins, ends)


def _relayed(topology: Topology, begins: Ints, ends: Ints) -> Ints:
    """Paths through the GPU of the sender's node on the receiver's rail."""
    per_node = topology.gpus_per_node
    middle = begins // per_node * per_node + ends % per_node
    near = begins // per_node == ends // per_node
    first = _shortest(topology, begins, np.where(near, ends, middle))
    second = _shortest(topology, np.where(near, ends, middle), ends)
    whole = np.concatenate([first, second], axis=1)
    order = np.argsort(whole < 0, axis=1, kind="stable")
    whole = np.take_along_axis(whole, order, axis=1)
    return np.ascontiguousarray(whole[:, : max(int((whole >= 0).sum(axis=1).max(initial=0)), 1)])


def _shortest(topology: Topology, begins: Ints, ends: Ints) -> Ints:
    """Paths of all flows; flows with the same ends have the same path."""
    pairs, flow = np.unique(ends * topology.gpus + begins, return_inverse=True)
    begins, ends = pairs % topology.gpus, pairs // topology.gpus
    per_node = max(topology.gpus_per_node, 1)
    far = begins // per_node != ends // per_node
    by_pair = bool(far.any()) and int(far.sum()) <= _FEW_SENDERS * len(np.unique(ends[far]))
    found = np.full((len(pairs), 1), -1, np.int64)
    for these, search in ((far, meet), (~far, walk)) if by_pair else ((np.ones(len(pairs), bool), walk),):
        if not these.any():
            continue
        paths = _searched(topology, begins[these], ends[these], search)
        wider = np.full((len(pairs), max(found.shape[1], paths.shape[1])), -1, np.int64)
        wider[:, : found.shape[1]] = found
        wider[these, : paths.shape[1]] = paths
        found = wider
    return np.ascontiguousarray(found[flow.reshape(-1)])


def _searched(topology: Topology, begins: Ints, ends: Ints, search: Callable[..., int]) -> Ints:
    """Paths of flows that are ordered by their ends."""
    work = len(begins) * 8 + len(np.unique(ends)) * topology.links
    compiled: Callable[..., Any] = fast(search, work)
    for hops, through_nics in ((_USUAL_HOPS, False), (_MOST_HOPS, False), (_MOST_HOPS, True)):
        walked = np.full((len(begins), min(hops, len(topology.names))), -1, np.int64)
        adjacency = _adjacency_of(_Same(topology), through_nics)
        stuck = int(compiled(*adjacency, begins, ends, topology.seed, walked))
        if stuck < 0:
            break
    if stuck >= 0:
        one, other = int(begins[stuck]), int(ends[stuck])
        raise InputError(
            f"{topology.names[one]} cannot reach {topology.names[other]} in {walked.shape[1]} hops; add a link between "
            "their parts of the network"
        )
    used = max(int((walked >= 0).sum(axis=1).max(initial=0)), 1)
    return walked[:, :used]


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
    """What `walk` takes; ``through_nics``: GPUs of a node may reach each other through a NIC that they share."""
    topology = same.topology
    vertices = len(topology.names)
    passes = np.ones(vertices, np.int64)
    if not through_nics:
        passes[[".nic" in name for name in topology.names]] = 2
    if not topology.transit:
        passes[: topology.gpus] = 0
    out, into = (np.argsort(ends, kind="stable") for ends in (topology.source, topology.target))
    begins = [
        np.searchsorted(ends[order], np.arange(vertices + 1)).astype(np.int64)
        for ends, order in ((topology.source, out), (topology.target, into))
    ]
    return begins[0], out, topology.source, topology.target, passes, begins[1], into
