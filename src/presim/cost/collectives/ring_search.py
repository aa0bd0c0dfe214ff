"""What NCCL's search for rings finds: the number of channels and the rate of each.

NCCL searches paths through the topology it detects. Where GPUs have a switch and ports of their own, as in the
catalogue, the result follows from sums of bandwidths. Public logs have 12 channels of 20 GB/s in a node of A100, 12 of
30 in one of H100 (NVIDIA/nccl issue 1197), and 8 of 24 and of 45 between nodes with eight ports of 200 and 400 Gb/s.
"""

from __future__ import annotations

import dataclasses
import functools

from presim.cost.collectives.group_placement import GroupPlacement, Links
from presim.cost.collectives.nccl_files import GraphFile, TopologyFile
from presim.cost.collectives.nccl_rules import search

_MOST_CHANNELS = 32
_NEW = ("hopper", "blackwell")


@dataclasses.dataclass(frozen=True)
class Channels:
    """Channels of a search, before NCCL doubles them."""

    count: int
    GBps: float  # of each, within nodes and between them

    @property
    def total_GBps(self) -> float:
        """Bandwidth of all channels."""
        return self.count * self.GBps


@functools.lru_cache(maxsize=1024)  # a search over sizes asks again and again
def ring_channels(
    layout: GroupPlacement, links: Links, graph: GraphFile | None = None, topology: TopologyFile | None = None
) -> Channels:
    """Rings of a group: as many and as fast as its links and ports carry, or those of a graph file of its GPUs."""
    if graph is not None and layout.per_node == graph.gpus:
        return Channels(graph.channels, graph.inside_GBps if layout.nodes <= 2 else graph.between_GBps)
    total_GBps = link_GBps(links)
    several = layout.nodes > 1
    ports, port_GBps = _ports(layout, links)
    if topology is not None and links.nvlink:
        total_GBps = topology.link_GBps or total_GBps
    if topology is not None and topology.ports and topology.gpus:
        ports, port_GBps = max(round(topology.ports * layout.per_node / topology.gpus), 1), topology.port_GBps
    best = Channels(1, min(_rates(links, several=several)[-1], total_GBps))
    for GBps in _rates(links, several=several):
        count = min(int(total_GBps / GBps + 1e-6), _MOST_CHANNELS)
        if several:
            count = min(count, ports * int(port_GBps / GBps + 1e-6)) if layout.per_node > 1 else min(count, ports)
            GBps = GBps if port_GBps >= GBps else 0.0
        if count * GBps > best.total_GBps * 1.0001:
            best = Channels(count, GBps)
    return _doubled(best, links.generation)


@dataclasses.dataclass(frozen=True)
class Heads:
    """Channels of NVLS: one for each GPU of a node."""

    count: int
    inside_GBps: float  # of each, through the node's switch
    outside_GBps: float  # of each, between nodes; as inside where there is one node


@functools.lru_cache(maxsize=1024)
def head_channels(layout: GroupPlacement, links: Links) -> Heads:
    """Channels of NVLS at the highest rates that the switch and the ports give all of them."""
    heads, several = layout.per_node, layout.nodes > 1
    rates = _rates(links, several=several)
    inside_GBps = _highest(rates, link_GBps(links) / max(heads - 1, 1))
    if not several:
        return Heads(heads, inside_GBps, inside_GBps)
    ports, port_GBps = _ports(layout, links)
    return Heads(heads, inside_GBps, _highest(rates, port_GBps * ports / heads))


def _highest(rates: tuple[float, ...], limit_GBps: float) -> float:
    return next((GBps for GBps in rates if GBps <= limit_GBps * 1.0001), rates[-1])


def link_GBps(links: Links) -> float:
    """What NCCL counts of a GPU's links within its node."""
    share = search().nvlink_share.get(links.generation, 0.8) if links.nvlink else search().pcie_share
    if links.rings:  # a mesh with unequal links
        share *= links.rings / links.rings_of_all
    return links.link_Bps * share * 1e-9


def _ports(layout: GroupPlacement, links: Links) -> tuple[int, float]:
    """Ports of a node that the group uses, and NCCL's bandwidth of each in GB/s."""
    node_Bps = links.network_Bps * layout.per_node
    ports = links.shared_ports or max(round(node_Bps / links.port_Bps) if links.port_Bps else layout.per_node, 1)
    return ports, node_Bps / ports * 1e-9


def _rates(links: Links, *, several: bool) -> tuple[float, ...]:
    rates = search().several_nodes_GBps if several else search().one_node_GBps
    return rates.get(links.generation, rates["volta"])


def _doubled(channels: Channels, generation: str) -> Channels:
    """Fast channels are split in two; on new GPUs only few or very fast ones."""
    limits = search()
    is_fast = channels.GBps >= limits.doubled_from_GBps
    is_split_anyway = channels.count <= limits.doubled_few["channels"] or channels.GBps >= limits.doubled_few["GBps"]
    if not is_fast or (generation in _NEW and not is_split_anyway):
        return channels
    return Channels(channels.count * 2, channels.GBps / 2)
