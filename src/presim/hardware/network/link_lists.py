"""Readers of topologies that list links, as ns-3's RDMA models and SimAI do."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable, Sequence

from presim.errors import InputError
from presim.hardware.network.topology import MOST_VERTICES, Builder, Topology
from presim.system.files import shortened

_Link = tuple[int, int, float, float]  # vertices, bytes/s, ns


def simai(text: str) -> Topology:
    """``nodes gpus_per_server nvswitches switches links gpu``, the switches, then ``from to 400Gbps 0.0005ms 0``."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    vertices, per_server, nvswitches, switches, links = (int(value) for value in lines[0][:5])
    if not (min(nvswitches, switches, links) >= 0 and 0 < per_server <= vertices <= MOST_VERTICES):
        raise InputError(
            f"the header names {vertices:,} vertices, {per_server:,} GPUs per server, {nvswitches:,} and {switches:,} "
            f"switches and {links:,} links; no number is negative, and there are at most {MOST_VERTICES:,} vertices"
        )
    gpus = vertices - nvswitches - switches
    builder = Builder(gpus)
    for number in range(gpus, vertices):
        builder.vertex(f"{'nvswitch' if number < gpus + nvswitches else 'switch'}{number}")
    links_to_add = _parsed_links(lines[1 + (nvswitches + switches > 0) :], links, vertices)
    if nvswitches:
        links_to_add = _behind_ports(builder, links_to_add, range(gpus, gpus + nvswitches), per_server)
    for link in links_to_add:
        builder.both_ways(*link)
    return builder.build(gpus_per_node=per_server)


def _behind_ports(builder: Builder, links: Iterable[_Link], nvswitches: range, per_server: int) -> list[_Link]:
    """The links, with a port between each GPU and the network's switches, so that NVSwitches are closer."""
    result, port_Bps = [], dict.fromkeys(range(builder.gpus), 0.0)
    for vertex, other_vertex, Bps, ns in links:
        gpu, switch = sorted((vertex, other_vertex))
        if gpu >= builder.gpus or switch < nvswitches.stop:
            result.append((vertex, other_vertex, Bps, ns))
        else:
            result.append((builder.vertex(f"node{gpu // per_server}.nic{gpu}"), switch, Bps, ns))
            port_Bps[gpu] += Bps
    ports = ((gpu, builder.vertex(f"node{gpu // per_server}.nic{gpu}"), Bps) for gpu, Bps in port_Bps.items() if Bps)
    return [*result, *((gpu, port, Bps, 0.0) for gpu, port, Bps in ports)]


def ns3(text: str) -> Topology:
    """``vertices switches links``, the switches, then ``from to 400Gbps 0.0005ms 0``; all other vertices are hosts."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    vertices, switches, links = (int(value) for value in lines[0])
    if not (min(switches, links) >= 0 and switches < vertices <= MOST_VERTICES):
        raise InputError(
            f"the header names {vertices:,} vertices, {switches:,} switches and {links:,} links; at least one "
            f"vertex is a host, and there are at most {MOST_VERTICES:,} vertices"
        )
    switch_ids = sorted({int(word) for word in lines[1]}) if switches else []
    if len(switch_ids) != switches or (switch_ids and not 0 <= switch_ids[0] <= switch_ids[-1] < vertices):
        raise InputError(
            f"the header announces {switches} switches below {vertices}, and the second line names {len(switch_ids)}: "
            f"{shortened(' '.join(map(str, switch_ids)))}; list each once"
        )
    builder = Builder(vertices - switches)
    is_switch = set(switch_ids)
    hosts = iter(range(builder.gpus))
    numbers = [builder.vertex(f"switch{id_}") if id_ in is_switch else next(hosts) for id_ in range(vertices)]
    links_to_add = [
        (numbers[source], numbers[target], Bps, ns)
        for source, target, Bps, ns in _parsed_links(lines[1 + (switches > 0) :], links, vertices)
    ]
    for link in links_to_add:
        builder.both_ways(*link)
    return builder.build(gpus_per_node=_node_size(builder.gpus, links_to_add))


def _node_size(gpus: int, links: Iterable[_Link]) -> int:
    """Hosts of a node, which the format does not state: those that links join, or at one switch by their fastest link.

    1: hosts have one link each, or the nodes found are not of one size and hosts in a row.
    """
    fastest: dict[int, tuple[float, int]] = {}  # of a GPU with several neighbours: rate and neighbour
    neighbours: dict[int, set[int]] = collections.defaultdict(set)
    for source, target, Bps, _ in links:
        for vertex, other in ((source, target), (target, source)):
            neighbours[vertex].add(other)
            fastest[vertex] = max(fastest.get(vertex, (0.0, -1)), (Bps, -other))
    node_of_gpu = list(range(gpus))
    first_of_switch: dict[int, int] = {}
    for gpu in range(gpus):
        joined = [other for other in neighbours[gpu] if other < gpu]
        switch = -fastest.get(gpu, (0.0, 0))[1]
        if switch >= gpus and len(neighbours[gpu]) > 1:
            joined.append(first_of_switch.setdefault(switch, gpu))
        nodes = {node_of_gpu[other] for other in joined} | {node_of_gpu[gpu]}
        node_of_gpu = [min(nodes) if node in nodes else node for node in node_of_gpu] if len(nodes) > 1 else node_of_gpu
    size = node_of_gpu.count(0)
    is_regular = gpus % size == 0 and node_of_gpu == [gpu // size * size for gpu in range(gpus)]
    return size if is_regular else 1


def _parsed_links(lines: Sequence[Sequence[str]], count: int, vertices: int) -> list[_Link]:
    """The links of the first ``count`` lines."""
    if len(lines) < count:
        raise InputError(
            f"the header announces {count} links, but the file has {len(lines)}: it is truncated; export it again"
        )
    links = [
        (int(source), int(target), _bits(bandwidth), _nanoseconds(latency))
        for source, target, bandwidth, latency, *_ in lines[:count]
    ]
    for source, target, _, _ in links:
        if not 0 <= min(source, target) <= max(source, target) < vertices:
            raise InputError(f"a link connects {source} and {target}, but there are {vertices} vertices; correct it")
    return links


def _bits(text: str) -> float:
    """Bytes/s of ``400Gbps``."""
    match = re.fullmatch(r"([\d.]+)([KMGT]?)bps", text)
    if match is None:
        raise InputError(f"{text!r} is not a bandwidth; write it like 400Gbps")
    return float(match[1]) * {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[match[2]] / 8


def _nanoseconds(text: str) -> float:
    match = re.fullmatch(r"([\d.]+)(ns|us|ms|s)", text)
    if match is None:
        raise InputError(f"{text!r} is not a latency; write it like 0.0005ms")
    return float(match[1]) * {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}[match[2]]
