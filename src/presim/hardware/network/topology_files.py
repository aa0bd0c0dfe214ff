"""Writers of topologies for other tools: ns-3 (as HPCC and ASTRA-sim read it), SimAI and htsim.

GPUs are hosts and everything else is a switch. SimAI links a GPU to the switch behind its port, which is no vertex.
For ns-3 ports are switches, so that the shortest path within a node is not by the network. With adaptive routing the
parallel spines of a description are one vertex with the sum of their links.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping

from presim.errors import InputError
from presim.hardware.network.build_topology import TopologyPlan
from presim.hardware.network.topology import Topology

_Pairs = dict[tuple[int, int], list[tuple[float, float]]]  # (bandwidth_Bps, latency_ns) of parallel links by vertices


def ns3(topology: Topology) -> str:
    """The text that ns-3's RDMA models read: vertices, switches and links; the switches; a line for each link."""
    pairs = _pairs(topology)
    numbers = _numbers(pairs, topology)
    link_lines = _link_lines(pairs, numbers)
    switches = range(topology.gpus, len(numbers))
    return "\n".join([
        f"{len(numbers)} {len(switches)} {len(link_lines)}", " ".join(map(str, switches)), *link_lines, ""
    ])  # fmt: skip


def simai(topology: Topology, gpu: str) -> str:
    """The text that SimAI reads: ns-3's with the GPUs of a server and the NVSwitches in its first line.

    ``gpu``: name of the GPU, such as H100.
    """
    pairs = _without_private_ports(_pairs(topology), topology)
    numbers = _numbers(pairs, topology)
    link_lines = _link_lines(pairs, numbers)
    nvswitches = sum(topology.names[vertex].endswith("nvswitch") for vertex in numbers)
    switches = len(numbers) - topology.gpus - nvswitches
    head = f"{len(numbers)} {topology.gpus_per_node or 1} {nvswitches} {switches} {len(link_lines)} {gpu}"
    return "\n".join([head, " ".join(map(str, range(topology.gpus, len(numbers)))), *link_lines, ""])


def htsim(plan: TopologyPlan) -> str:
    """The ``.topo`` of a fat tree; htsim's nodes are the ports of the cluster's nodes.

    Raises:
        InputError: the network is no regular fat tree, or has links that htsim's format cannot state.
    """
    description = plan.description
    if description.fabric != "fat-tree" or description.links or description.factors or description.failed:
        raise InputError(
            f"htsim's .topo describes regular fat trees; this network is a {description.fabric} or has links, factors "
            "or failures of its own: export it for ns3 or simai"
        )
    ports = plan.nodes * plan.nics
    leaf_ports = min(description.leaf_nodes * plan.nics, ports) if description.levels > 1 else ports
    leaves = ports / leaf_ports
    levels = description.levels if leaves > 1 else 1
    pod_leaves = min(description.pod_leaves, leaves) if levels == 3 else leaves
    down = [leaf_ports, pod_leaves, leaves / pod_leaves][:levels]
    up = [leaf_ports / description.oversubscription, pod_leaves / description.core_oversubscription][: levels - 1]
    if any(radix % 1 for radix in (*down, *up)) or (levels > 1 and description.spines not in (0, up[0])):
        down_text, up_text = (", ".join(f"{radix:g}" for radix in radices) for radices in (down, up))
        raise InputError(
            f"htsim's .topo has whole switches and links: {ports} ports would have switches with "
            f"{down_text} links downwards and {up_text} upwards; choose counts that divide, or export it for ns3"
        )
    lines = [f"Nodes {ports}", f"Tiers {levels}", f"Podsize {leaf_ports * pod_leaves:.0f}"]
    for tier in range(levels):
        lines += [f"Tier {tier}", f"Downlink_speed_Gbps {plan.nic_Bps * 8e-9:.12g}", f"Radix_Down {down[tier]:.0f}"]
        lines += [f"Radix_Up {up[tier]:.0f}"] if tier < levels - 1 else []
        lines.append(f"Downlink_Latency_ns {description.link_latency_us * 1e3:.0f}")
        lines.append(f"Switch_Latency_ns {description.switch_latency_us * 1e3:.0f}")
    return "\n".join([*lines, ""])


def _numbers(pairs: _Pairs, topology: Topology) -> Mapping[int, int]:
    """The numbers of vertices with links: GPUs, NVSwitches, all others."""
    vertices = sorted({vertex for pair in pairs for vertex in pair} | set(range(topology.gpus)))
    vertices.sort(
        key=lambda vertex: 0 if vertex < topology.gpus else 1 if topology.names[vertex].endswith("nvswitch") else 2
    )
    return {vertex: number for number, vertex in enumerate(vertices)}


def _pairs(topology: Topology) -> _Pairs:
    """Links by their ends, the lower vertex first.

    Raises:
        InputError: two vertices have other links in one direction than in the other.
    """
    one_way: _Pairs = collections.defaultdict(list)
    columns = (topology.source, topology.target, topology.bandwidth_Bps, topology.latency_ns)
    for source, target, Bps, ns in zip(*(column.tolist() for column in columns), strict=True):
        one_way[source, target].append((Bps, ns))
    for source, target in one_way:
        if sorted(one_way[source, target]) != sorted(one_way.get((target, source), [])):
            raise InputError(
                f"{topology.names[source]} has other links to {topology.names[target]} than back; files of ns-3 and "
                "SimAI state links in both directions"
            )
    return {pair: links for pair, links in one_way.items() if pair[0] < pair[1]}


def _without_private_ports(pairs: _Pairs, topology: Topology) -> _Pairs:
    """The links, with one in place of those before and behind a port that only one GPU uses."""
    neighbours: dict[int, list[int]] = collections.defaultdict(list)
    for low, high in pairs:
        neighbours[low].append(high)
        neighbours[high].append(low)
    result = dict(pairs)
    for vertex, adjacent_vertices in neighbours.items():
        is_port = (
            ".nic" in topology.names[vertex] and len(adjacent_vertices) == 2 and min(adjacent_vertices) < topology.gpus
        )
        if not is_port:
            continue
        pairs_of_port = [(min(vertex, other), max(vertex, other)) for other in adjacent_vertices]
        if any(len(result[end]) > 1 for end in pairs_of_port):
            continue
        (before_Bps, before_ns), (behind_Bps, behind_ns) = (result.pop(end)[0] for end in pairs_of_port)
        link = (min(before_Bps, behind_Bps), before_ns + behind_ns)
        result.setdefault((min(adjacent_vertices), max(adjacent_vertices)), []).append(link)
    return result


def _link_lines(pairs: _Pairs, numbers: Mapping[int, int]) -> list[str]:
    """``from to 400Gbps 0.0005ms 0`` for each link; the last figure is the rate of errors."""
    return [
        f"{numbers[low]} {numbers[high]} {Bps * 8e-9:.12g}Gbps {ns * 1e-6:.9f}ms 0"
        for (low, high), links in sorted(pairs.items(), key=lambda item: (numbers[item[0][0]], numbers[item[0][1]]))
        for Bps, ns in links
    ]
