"""NCCL's algorithms as formulas: rings, trees, in-switch reduction, PAT and direct exchange, each in three protocols.

A collective takes its latency (base, steps along its path, network hops) plus the larger of two times: its traffic over
the links within a node, and over the ports between nodes. Each formula is linear in the size. Their minimum has the
measured transition from latency to bandwidth. Sources: TorchSim paper, Table 10 (steps and volumes); Hu et al.,
Demystifying NCCL (2025), section 5 (algorithms).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from presim.cost.collectives.collective_constants import FabricConstants, LinkConstants, hop_shares
from presim.cost.collectives.group_placement import GroupPlacement, Links
from presim.cost.collectives.nccl_rules import smooth_tree_factor
from presim.hardware.constants import value

_LL128 = 1
_BUFFER_BYTES, _BUFFER_STEPS = 4 << 20, 8  # of a channel with Simple: NVIDIA/nccl, src/include/device.h
SIMPLE = 2  # the protocol with full bandwidth and the highest latency; LL is 0, LL128 is 1
_MESSAGE = value("nccl.message_latency")
DIRECT = ("all_to_all", "send", "recv", "send_recv")
_REDUCED_EVERYWHERE = ("all_reduce", "barrier")
_SCATTERED = ("all_gather", "reduce_scatter")
_CHAINED = ("broadcast", "reduce")
_LOCAL_EFFICIENCY = value("nccl.local_memory_share")
_EQUAL = (1.0, 1.0, 1.0)


@dataclasses.dataclass(frozen=True)
class CollectiveCall:
    """One collective with the links it uses and their constants."""

    kind: str
    size: float  # bytes, as `Collective` counts them
    node_bytes: float  # all-to-all: bytes between one rank and the others of its node, in the busier direction
    other_node_bytes: float  # all-to-all: bytes between one rank and those of other nodes, in the busier direction
    own_bytes: float  # bytes of a rank's own part
    layout: GroupPlacement
    links: Links
    link: LinkConstants
    fabric: FabricConstants
    channels: float
    version: str = ""  # of NCCL; empty: the usual one
    threads_share: float = 1.0  # threads of a channel over NCCL's default
    buffers: float = 1.0  # buffers of a channel over NCCL's default


@dataclasses.dataclass(frozen=True)
class AlgorithmRun:
    """An algorithm and protocol for a call, with its duration."""

    seconds: float
    latency: float  # part of `seconds` that does not depend on the size
    algorithm: str
    protocol: int
    between: float = 0.0  # bytes that a node sends to others; 0: those of a ring


Formula = Callable[[CollectiveCall, int], AlgorithmRun | None]  # (call, protocol); None: does not apply to this call


def ring(call: CollectiveCall, protocol: int) -> AlgorithmRun | None:
    """A ring through all nodes, or a chain for rooted collectives. Neighbours on one node are NVLink neighbours."""
    if call.kind in DIRECT:
        return None
    ranks, rounds = call.layout.ranks, 2 if call.kind in _REDUCED_EVERYWHERE else 1
    share = 1.0 if call.kind in _CHAINED else (ranks - 1) / ranks
    volume = rounds * share * call.size
    inside = rounds * (ranks - call.layout.nodes)
    run = _run(call, protocol, "ring", volume, volume, inside, rounds * (call.layout.nodes - 1))
    if protocol != SIMPLE or call.layout.nodes == 1:
        return run
    entry_s = rounds * call.link.ring_entry_us * 1e-6
    return dataclasses.replace(run, seconds=run.seconds + entry_s, latency=run.latency + entry_s)


def tree(call: CollectiveCall, protocol: int) -> AlgorithmRun | None:
    """A double binary tree between nodes and chains within them. Data goes up and down once, over duplex links.

    Between two nodes all data needs to be sent only once. Public logs show no such gain with Simple. Medium sizes fall
    short of the bandwidth by the factors that NCCL's own model has for trees.
    """
    if call.kind not in _REDUCED_EVERYWHERE or call.layout.nodes == 1:
        return None
    between = (1 if call.layout.nodes == 2 and protocol != SIMPLE else 2) * call.size
    inside, hops = 2 * (call.layout.per_node - 1), 2 * math.ceil(math.log2(call.layout.nodes))
    between /= smooth_tree_factor(protocol, call.size)
    return _run(call, protocol, "tree", call.size, between, inside, hops)


def nvls(call: CollectiveCall, protocol: int) -> AlgorithmRun | None:
    """NVLS and NVLSTree: the switch reduces and multicasts within a node; a tree connects nodes.

    Two nodes send all data once. With more nodes, an inner node of the tree forwards the data of its two children.
    """
    layout, fabric = call.layout, call.fabric
    scatters = call.kind in _SCATTERED and layout.nodes == 1
    if protocol != SIMPLE or not _multicasts(call) or not (scatters or call.kind == "all_reduce"):
        return None
    within, latency = _multicast_s(call), _multicast_latency_s(call)
    if layout.nodes == 1:
        return AlgorithmRun(latency + within, latency, "nvls", protocol)
    hops = 2 * math.ceil(math.log2(layout.nodes))
    latency += fabric.switch_entry_us * 1e-6 + _hop_s(call, "tree", SIMPLE) * hops
    between = (1 if layout.nodes == 2 else 2) * call.size
    between_s = between / (_ports_Bps(call) * fabric.switch_efficiency)
    return AlgorithmRun(latency + max(within / fabric.switch_share, between_s), latency, "nvlstree", protocol, between)


def collnet(call: CollectiveCall, protocol: int) -> AlgorithmRun | None:
    """CollnetDirect: the switches between nodes reduce (SHARP), so each port sends and receives its share only once.

    Within a node the switch reduces and multicasts if it can; else every GPU reduces a share and gathers the results.
    Source: NCCL's documentation, NCCL_COLLNET_ENABLE and NCCL_ALGO. That ports keep their usual efficiency is assumed.
    """
    if call.kind != "all_reduce" or protocol != SIMPLE or call.layout.nodes == 1 or not call.links.reduces:
        return None
    if not _multicasts(call):
        share = (call.layout.per_node - 1) / call.layout.per_node
        return _run(call, protocol, "collnetdirect", 2 * share * call.size, call.size, 2, 2)
    latency = _multicast_latency_s(call) + call.fabric.switch_entry_us * 1e-6 + 2 * _hop_s(call, "tree", SIMPLE)
    between = call.size / (_ports_Bps(call) * call.fabric.efficiency[SIMPLE])
    return AlgorithmRun(latency + max(_multicast_s(call), between), latency, "collnetdirect", protocol)


def _multicasts(call: CollectiveCall) -> bool:
    """Whether the node's switch reduces and multicasts."""
    return call.link.multicast_us > 0 and call.layout.per_node > 1 and call.links.switched


def _multicast_latency_s(call: CollectiveCall) -> float:
    """Latency of NVLS. NCCL sends larger chunks of larger messages; the first and the last one are not overlapped."""
    link = call.link
    filled = call.size / (call.size + link.multicast_fill_MiB * 2**20) if call.size else 0.0
    return (link.multicast_us + link.multicast_fill_us * filled) * 1e-6


def _multicast_s(call: CollectiveCall) -> float:
    """Time of the data over the node's switch.

    An all-reduce sends all data of a GPU to the switch once, and the GPU's share of the sums. What channels carry is
    counted in bytes of the equivalent ring.
    """
    ranks = call.layout.per_node
    reduces = call.kind == "all_reduce"
    of_ring = (2 if reduces else 1) * (ranks - 1) / ranks * call.size
    on_link = (ranks + 1) / ranks * call.size if reduces else of_ring
    channels_Bps = call.channels * call.link.multicast_channel_GBps * 1e9
    return max(on_link / (call.links.link_Bps * call.link.multicast_efficiency), of_ring / channels_Bps)


def pat(call: CollectiveCall, protocol: int) -> AlgorithmRun | None:
    """Parallel aggregated trees (NCCL 2.23), for one rank per node: a logarithmic number of steps."""
    if call.kind not in _SCATTERED or call.layout.per_node > 1 or protocol != SIMPLE:
        return None
    volume = (call.layout.ranks - 1) / call.layout.ranks * call.size
    return _run(call, protocol, "pat", volume, volume, 0, math.ceil(math.log2(call.layout.nodes)))


def direct(call: CollectiveCall, protocol: int) -> AlgorithmRun | None:
    """Direct exchange: an all-to-all uses all links and ports, a message one of them."""
    if call.kind not in DIRECT:
        return None
    layout, link, fabric = call.layout, call.link, call.fabric
    everyone = call.kind == "all_to_all"
    peers = layout.ranks - 1 if everyone else 1
    near_peers = min(peers, layout.per_node - 1)
    far_peers = peers - near_peers
    reach = _within_Bps(call) * link.direct_efficiency[protocol] * (_torus_share(call) if everyone else 1.0)
    latency = (link.direct_us[protocol] * (1 if everyone else _MESSAGE) + link.direct_step_us * peers) * 1e-6
    between = 0.0
    if far_peers:
        slower = fabric.efficiency[protocol] / fabric.efficiency[SIMPLE]
        between = (call.other_node_bytes if everyone else call.size) / (
            call.links.network_Bps * call.links.port_share * fabric.direct_efficiency * slower
        )
        latency += fabric.entry_us[protocol] * 1e-6 * (1 if everyone else _MESSAGE) + _hop_s(call, "", protocol)
    within = call.node_bytes if everyone else near_peers * call.size
    return AlgorithmRun(latency + max(within / reach + _own_copy_s(call), between), latency, "direct", protocol)


# Keys are names in NCCL_ALGO. Algorithms without such a name are always allowed.
FORMULAS: dict[str, Formula] = {
    "ring": ring,
    "tree": tree,
    "nvls": nvls,
    "collnet": collnet,
    "pat": pat,
    "direct": direct,
}


def _run(
    call: CollectiveCall, protocol: int, algorithm: str, volume: float, between: float, inside: int, hops: int
) -> AlgorithmRun:
    """Latency of the steps plus the larger of the transfer times within and between nodes.

    ``volume``: bytes per rank within nodes; ``between``: bytes per node between nodes; ``inside``, ``hops``: number of
    steps within nodes and between them.
    """
    link, fabric, layout = call.link, call.fabric, call.layout
    latency = (link.base_us[protocol] + link.step_us[protocol] * inside) * 1e-6
    within = volume * (link.tree_passes if algorithm == "tree" else 1.0) / _channels_Bps(call, protocol)
    if layout.per_node > 1:
        reach = link.efficiency[protocol] * (1 - link.small_group / layout.per_node)
        within = max(within, volume / (_within_Bps(call) * reach))
    within += _more_steps_s(call, protocol, volume) + _own_copy_s(call)
    if layout.nodes == 1:
        return AlgorithmRun(latency + within, latency, algorithm, protocol)
    latency += fabric.entry_us[protocol] * 1e-6 + _hop_s(call, algorithm, protocol) * hops
    outside = between / (_ports_Bps(call) * fabric.efficiency[protocol])
    outside += _more_steps_s(call, protocol, volume)
    return AlgorithmRun(latency + max(within, outside), latency, algorithm, protocol, between)


def _hop_s(call: CollectiveCall, algorithm: str, protocol: int) -> float:
    """Latency of one hop between nodes: the full latency from 8 KiB on, `small_hop` of it up to 256 bytes.

    Hops of protocols and algorithms are to each other as in NCCL's own table.
    """
    grown = min(max((math.log2(max(call.size, 1)) - 8) / 5, 0.0), 1.0)
    share = call.fabric.small_hop + (1 - call.fabric.small_hop) * grown
    return call.fabric.hops * call.links.hop_s * share * hop_shares().get(algorithm, _EQUAL)[protocol]


def _own_copy_s(call: CollectiveCall) -> float:
    """Time to copy a rank's own part to its place in the result, which gathers and all-to-alls do on the GPU."""
    if call.kind not in ("all_to_all", "all_gather"):
        return 0.0
    return 2 * call.own_bytes / (call.links.memory_Bps * _LOCAL_EFFICIENCY)


def _channels_Bps(call: CollectiveCall, protocol: int) -> float:
    """Bandwidth of the thread blocks of all channels, which move and reduce data."""
    share = 1.0 if protocol == _LL128 else call.threads_share
    return call.channels * call.link.channel_GBps[protocol] * share * 1e9


def _more_steps_s(call: CollectiveCall, protocol: int, volume: float) -> float:
    """Time of the steps that smaller buffers add: each has an eighth of a buffer, and one synchronisation.

    Larger buffers are taken to gain nothing.
    """
    if protocol != SIMPLE or call.buffers == 1.0:
        return 0.0
    steps = volume / max(call.channels, 1) / (_BUFFER_BYTES / _BUFFER_STEPS)
    return max(steps * call.link.step_us[SIMPLE] * 1e-6 * (1 / call.buffers - 1), 0.0)


def _ports_Bps(call: CollectiveCall) -> float:
    """Bandwidth of the node's ports that the group uses: one port per member."""
    return call.links.network_Bps * call.links.port_share * call.layout.per_node


def _within_Bps(call: CollectiveCall) -> float:
    """Bandwidth of one rank to the others of its node. In a mesh only links to members count."""
    layout, links = call.layout, call.links
    if links.rings:
        return links.link_Bps * links.rings / links.rings_of_all
    share = (max(layout.per_node, 2) - 1) / (links.mesh - 1) if links.mesh > 1 else 1.0
    return links.link_Bps * share * _shared_host_limit(call)


def _torus_share(call: CollectiveCall) -> float:
    """Share of its links that a device uses while all exchange with all: a torus is limited by its bisection.

    Half of what N devices send crosses the middle. A side of k devices has 2 N / k links across it, one way, so each
    device sends at the rate of 8 / k links. It has two links per dimension. The torus is taken to be of equal sides.
    """
    dimensions = call.links.torus
    if not dimensions:
        return 1.0
    side = math.pow(call.layout.per_node, 1 / dimensions)
    return min(1.0, 8 / side / (2 * dimensions))


def _shared_host_limit(call: CollectiveCall) -> float:
    """Share of its link that a GPU can use if more than two exchange data: sockets or switches limit the total.

    The limit applies to all protocols alike, in addition to their own efficiency.
    """
    layout, links, link = call.layout, call.links, call.link
    if layout.per_node <= 2:
        return 1.0
    if not links.exchange_Bps:
        return link.crowd
    pair_Bps = links.link_Bps * link.efficiency[SIMPLE] * (1 - link.small_group / layout.per_node)
    return min(1.0, links.exchange_Bps / pair_Bps)
