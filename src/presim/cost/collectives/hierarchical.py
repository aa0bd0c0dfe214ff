"""Rings, trees and in-switch reduction over two tiers, each with NCCL's three protocols: the fastest one wins.

A collective takes its latency (base, steps along its path, network hops) plus the slower of its traffic over the
links within a node and over the NICs between nodes. Every candidate is linear in the size, so that their minimum,
as measured, bends from latency to bandwidth. Volumes per algorithm: Table 10 of the TorchSim paper has the same
steps; Hu et al., Demystifying NCCL (2025), section 5, has the algorithms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from presim.cost.collectives.constants import FabricConstants, LinkConstants, fabric_constants, link_constants
from presim.cost.collectives.placement import Layout, Links, layout_of, links_of
from presim.cost.price import Origin, Price
from presim.errors import InputError
from presim.hardware import Cluster
from presim.trace.schema import Group
from presim.trace.signatures import COLLECTIVE_KINDS, Collective

_LOCAL_US = 4.5  # a collective of one rank is a copy (nccl-tests log of one A100, Echo)
_LOCAL_EFFICIENCY = 0.8  # of memory bandwidth, read and written
_FUSED_US = 0.3  # each further call of a coalesced launch. A guess: NCCL enqueues it into the same kernel
_BARRIER_BYTES = 4
_MESSAGE = 0.22  # latency of one message, in that of an all-to-all (vidur: send/receive within A100, H100 nodes)
_DIRECT = ("all_to_all", "send", "recv", "send_recv")
_FITTED_RANKS = 8  # of one node; racks that NVLink joins are extrapolated
_BEYOND_FIT = 0.2
_UNKNOWN_RANKS = 0.25  # added to the uncertainty where consecutive ranks had to be assumed


class Hierarchical:
    """The analytic `CollectiveModel`."""

    name = "analytic/hierarchical"

    def price(self, collective: Collective, group: Group, cluster: Cluster) -> Price:
        """Duration from the moment all members have arrived, running alone."""
        if collective.kind not in COLLECTIVE_KINDS:
            known = ", ".join(COLLECTIVE_KINDS)
            raise InputError(f"{collective.kind!r} is no kind of collective: known are {known}; correct the trace")
        layout = layout_of(collective, group, cluster)
        links = links_of(cluster, layout)
        if layout.ranks <= 1:
            return _local(collective, links, self.name)
        link = link_constants(links.generation, links.nvlink)
        fabric = fabric_constants(links.fabric)
        size = float(_BARRIER_BYTES if collective.kind == "barrier" else max(collective.bytes, 0))
        duration, latency = min(candidates(collective.kind, size, layout, links, link, fabric))
        duration += _FUSED_US * 1e-6 * (max(collective.fused, 1) - 1)
        far_from_fit = _BEYOND_FIT if layout.per_node > _FITTED_RANKS else 0.0
        width = link.uncertainty if layout.nodes == 1 else max(link.uncertainty, fabric.uncertainty)
        width = min(width + far_from_fit + (0.0 if layout.known else _UNKNOWN_RANKS), 0.9)
        bound = "latency" if latency > duration / 2 else "network"
        return Price(max(1, round(duration * 1e9)), Origin.ANALYTIC, width, self.name, bound)


def candidates(
    kind: str, size: float, layout: Layout, links: Links, link: LinkConstants, fabric: FabricConstants
) -> Iterator[tuple[float, float]]:
    """(duration, its latency) in seconds of every algorithm and protocol that could run."""
    for protocol in range(3):
        if kind in _DIRECT:
            yield _direct(kind, size, layout, links, link, fabric, protocol)
            continue
        yield _ring(kind, size, layout, links, link, fabric, protocol)
        if kind in ("all_reduce", "barrier") and layout.nodes > 1:
            yield _tree(size, layout, links, link, fabric, protocol)
    if kind == "all_reduce" and 0 < link.multicast_ranks <= layout.per_node and links.switched:
        yield _multicast(size, layout, links, link, fabric)


def _ring(
    kind: str, size: float, layout: Layout, links: Links, link: LinkConstants, fabric: FabricConstants, protocol: int
) -> tuple[float, float]:
    """A ring (a chain for rooted collectives) through all nodes; neighbours on one node are NVLink neighbours."""
    ranks, rounds = layout.ranks, 2 if kind in ("all_reduce", "barrier") else 1
    share = 1.0 if kind in ("broadcast", "reduce") else (ranks - 1) / ranks
    volume = rounds * share * size
    inside = rounds * (ranks - layout.nodes)
    hops = rounds * (layout.nodes - 1)
    return _time(volume, volume, inside, hops, layout, links, link, fabric, protocol)


def _tree(
    size: float, layout: Layout, links: Links, link: LinkConstants, fabric: FabricConstants, protocol: int
) -> tuple[float, float]:
    """NCCL's double binary tree between nodes, chains within: up and down once.

    Two nodes need to send everything once only; at full bandwidth (Simple) public logs show no such gain.
    """
    between = (1 if layout.nodes == 2 and protocol < 2 else 2) * size
    inside, hops = 2 * (layout.per_node - 1), 2 * math.ceil(math.log2(layout.nodes))
    return _time(2 * size, between, inside, hops, layout, links, link, fabric, protocol)


def _multicast(
    size: float, layout: Layout, links: Links, link: LinkConstants, fabric: FabricConstants
) -> tuple[float, float]:
    """NVLS: the switch reduces and multicasts; a tree between nodes.

    Two nodes send everything once; among more, an inner node passes on what its two children sent.
    """
    ring = 2 * (layout.per_node - 1) / layout.per_node * size
    within = ring / (links.link_Bps * link.multicast_efficiency)
    latency = link.multicast_us * 1e-6
    if layout.nodes == 1:
        return latency + within, latency
    hops = 2 * math.ceil(math.log2(layout.nodes))
    latency += fabric.entry_us[2] * 1e-6 + fabric.hops * links.hop_s * hops
    between = (1 if layout.nodes == 2 else 2) * size / (links.network_Bps * layout.per_node * fabric.efficiency[2])
    return latency + max(within, between), latency


def _direct(
    kind: str, size: float, layout: Layout, links: Links, link: LinkConstants, fabric: FabricConstants, protocol: int
) -> tuple[float, float]:
    """Every pair at once: all-to-all by all links and NICs, a message by one of them."""
    everyone = kind == "all_to_all"
    peers = layout.ranks - 1 if everyone else 1
    near = min(peers, layout.per_node - 1)
    far = peers - near
    each = size / layout.ranks if everyone else size
    reach = _within_Bps(layout, links, link) * link.direct_efficiency[protocol]
    reach *= 1 - link.small_group / layout.ranks if everyone else 1.0
    latency = (link.direct_us[protocol] * (1 if everyone else _MESSAGE) + link.direct_step_us * peers) * 1e-6
    between = 0.0
    if far:
        slower = fabric.efficiency[protocol] / fabric.efficiency[2]
        between = far * each / (links.network_Bps * fabric.direct_efficiency * slower)
        latency += fabric.entry_us[protocol] * 1e-6 * (1 if everyone else _MESSAGE) + fabric.hops * links.hop_s
    return latency + max(near * each / reach, between), latency


def _time(
    volume: float,
    between: float,
    inside: float,
    hops: float,
    layout: Layout,
    links: Links,
    link: LinkConstants,
    fabric: FabricConstants,
    protocol: int,
) -> tuple[float, float]:
    """Latency of the steps, plus the slower of the traffic within (per rank) and between nodes (per node), in bytes."""
    latency = (link.base_us[protocol] + link.step_us[protocol] * inside) * 1e-6
    within = 0.0
    if layout.per_node > 1:
        reach = link.efficiency[protocol] * (1 - link.small_group / layout.per_node)
        within = volume / (_within_Bps(layout, links, link) * reach)
    if layout.nodes == 1:
        return latency + within, latency
    latency += fabric.entry_us[protocol] * 1e-6 + fabric.hops * links.hop_s * hops
    outside = between / (links.network_Bps * layout.per_node * fabric.efficiency[protocol])
    return latency + max(within, outside), latency


def _within_Bps(layout: Layout, links: Links, link: LinkConstants) -> float:
    """What one rank has towards the others of its node: in a mesh, only the links to those that take part."""
    share = (max(layout.per_node, 2) - 1) / (links.mesh - 1) if links.mesh > 1 else 1.0
    return links.link_Bps * share * (link.crowd if layout.per_node > 2 else 1.0)


def _local(collective: Collective, links: Links, name: str) -> Price:
    """One rank: a copy of its own data."""
    size = 0 if collective.kind == "barrier" else max(collective.bytes, 0)
    duration = _LOCAL_US * 1e-6 + 2 * size / (links.memory_Bps * _LOCAL_EFFICIENCY)
    return Price(round(duration * 1e9), Origin.ANALYTIC, 0.5, name, "latency" if size < 1 << 22 else "memory")
