"""What collectives take of the links above leaf switches, so that different ones at the same time slow each other.

A collective's price already has in it what its own sisters (all groups of its kind) take from each other. Where leaf
switches are oversubscribed, its ranks also take a part of their leaf's uplinks while it runs, and the engine adds the
parts of whatever runs at the same time (`presim.engine.slowdown`): an all-gather beside an all-to-all of other groups.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from presim.cost.collectives.contended import described_network, link_bytes
from presim.hardware import Cluster
from presim.network.topology import Floats, Ints, Topology
from presim.trace.collective import Collective
from presim.trace.schema import Group

_NARROWER = 0.999  # of the bandwidth below a leaf: above this it is not oversubscribed
_KEPT = 8


@dataclasses.dataclass(frozen=True)
class Uplinks:
    """Leaf switches whose uplinks carry less than their ports."""

    leaf: Ints  # by rank, from 0
    ranks: Ints  # by leaf: GPUs below it
    up: Ints  # by link: the leaf it leads up from; -1: none
    down: Ints  # by link: the leaf it leads down to; -1: none
    up_Bps: Floats  # by leaf
    down_Bps: Floats


_known: dict[bytes, Uplinks | None] = {}  # by a cluster's key


def uplinks_of(cluster: Cluster) -> Uplinks | None:
    """The leaves of a cluster's described network; None: it has none, or all carry what comes from below."""
    if not cluster.network:
        return None
    key, topology = described_network(cluster)
    if key not in _known:
        if len(_known) >= _KEPT:
            _known.clear()
        _known[key] = _uplinks(topology)
    return _known[key]


def ports_of(cluster: Cluster) -> tuple[int, ...]:
    """By rank, the leaf whose uplinks it shares; none where nothing is oversubscribed."""
    found = uplinks_of(cluster)
    return () if found is None else tuple(found.leaf.tolist())


def parts_of(collective: Collective, group: Group, cluster: Cluster, seconds: float) -> tuple[float, float]:
    """What one rank takes of its leaf's uplinks, out and in, while all groups of the kind exchange for so long."""
    found = uplinks_of(cluster)
    carried = link_bytes(collective, group, cluster) if found is not None else None
    if found is None or carried is None:
        return 0.0, 0.0
    leaves = np.unique(found.leaf[np.array(group.ranks, np.int64)])

    def part(leaf_of_link: Ints, bandwidth_Bps: Floats) -> float:
        used = leaf_of_link >= 0
        bytes_ = np.bincount(leaf_of_link[used], carried[used], minlength=len(found.ranks))
        of_leaf = np.minimum(bytes_ / (bandwidth_Bps * seconds), 1.0) / found.ranks
        return float(of_leaf[leaves].max())

    return part(found.up, found.up_Bps), part(found.down, found.down_Bps)


def _uplinks(topology: Topology) -> Uplinks | None:
    names = topology.names
    is_nic = np.array([".nic" in name for name in names])
    leaf_number = np.full(len(names), -1, np.int64)
    leaves = [vertex for vertex, name in enumerate(names) if name.split(".")[-1].startswith("leaf")]
    leaf_number[leaves] = np.arange(len(leaves))
    source, target = topology.source, topology.target
    from_nic, to_leaf = is_nic[source], leaf_number[target]
    up = np.where(is_nic[target], -1, leaf_number[source])
    down = np.where(from_nic, -1, to_leaf)

    def total(of_link: Ints) -> Floats:
        used = of_link >= 0
        return np.bincount(of_link[used], topology.bandwidth_Bps[used], minlength=len(leaves)).astype(np.float64)

    below = total(np.where(from_nic, to_leaf, -1))
    up_Bps, down_Bps = total(up), total(down)
    if not len(leaves) or not ((up_Bps > 0) & (up_Bps < _NARROWER * below)).any():
        return None
    leaf_of_nic = np.full(len(names), -1, np.int64)
    joined = from_nic & (to_leaf >= 0)
    leaf_of_nic[source[joined]] = to_leaf[joined]
    leaf = np.zeros(topology.gpus, np.int64)
    own = (source < topology.gpus) & is_nic[target]
    leaf[source[own]] = leaf_of_nic[target[own]]
    ranks = np.maximum(np.bincount(leaf, minlength=len(leaves)), 1)
    free = np.finfo(np.float64).max
    return Uplinks(leaf, ranks, up, down, np.where(up_Bps > 0, up_Bps, free), np.where(down_Bps > 0, down_Bps, free))
