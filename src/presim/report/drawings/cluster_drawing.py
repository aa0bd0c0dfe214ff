"""A cluster as people sketch it: nodes with their GPUs, the links within, and the network between them."""

from __future__ import annotations

import math

from markupsafe import Markup

from presim.hardware.cluster import Cluster, NodeGroup
from presim.units import gib, rate, seconds, three_digits

_WIDTH, _GAP, _PITCH, _MARGIN = 640, 16, 18, 8  # px
_MOST_NODES, _MOST_GPUS = 4, 72  # that are drawn
_BAR, _LINKS, _TEXT = 26, 22, 20  # heights: of the network, of the links to it, of a line of text


def cluster_svg(cluster: Cluster) -> Markup:
    """The drawing; of more than `_MOST_NODES` nodes the first, and the number of the others."""
    shown = min(cluster.nodes, _MOST_NODES)
    columns = _columns(min(cluster.gpus_per_node, _MOST_GPUS))
    width = min((_WIDTH - _GAP * (shown - 1)) / shown, max(columns * _PITCH + 2 * _MARGIN, 140))
    top = _BAR + _LINKS if cluster.nodes > 1 else 0
    rows = math.ceil(min(cluster.gpus_per_node, _MOST_GPUS) / columns)
    height = rows * _PITCH + _MARGIN + 3 * _TEXT
    parts = [_node(cluster, node, node * (width + _GAP), top, width, height) for node in range(shown)]
    if cluster.nodes > 1:
        parts.append(_network(cluster, shown, width))
    bottom = top + height
    if cluster.nodes > shown:
        text = f"… and {cluster.nodes - shown:,} more nodes"
        parts.append(Markup('<text x="0" y="{}">{}</text>').format(bottom + _TEXT - 4, text))
        bottom += _TEXT
    return Markup('<svg class="cluster" viewBox="0 0 {} {:.0f}" role="img" aria-label="{}">{}</svg>').format(
        _WIDTH, bottom + 2, "; ".join(cluster_facts(cluster)), Markup("").join(parts)
    )


def cluster_facts(cluster: Cluster) -> list[str]:
    """The cluster in sentences: GPUs, links within a node, network between nodes; of each group that differs, too."""
    return [fact for part in cluster.all_parts if part.nodes for fact in _facts(cluster, part)]


def _facts(cluster: Cluster, part: NodeGroup) -> list[str]:
    view = cluster.as_seen_by(part.first_node * cluster.gpus_per_node) if part.name else cluster
    gpu, node, fabric = part.gpu, part.node, part.fabric
    peak = gpu.peak("bf16")
    figures = [gib(gpu.memory_bytes), rate(gpu.memory_bytes_per_s)]
    figures += [f"{three_digits(peak / 1e12)} TFLOP/s in bf16"] if peak else []
    name = f"{part.name}: " if part.name else ""
    facts = [f"{name}{part.nodes:,} x {cluster.gpus_per_node} {gpu.name}: {', '.join(figures)}"]
    links = f"{node.name}: {node.interconnect}, {rate(view.link_bytes_per_s)} a GPU, one way"
    if view.domain_size > cluster.gpus_per_node:
        links += f", over {view.domain_size} GPUs of {view.domain_size // cluster.gpus_per_node} nodes"
    facts.append(links)
    if view.domain_size < cluster.world_size:
        latency = seconds(fabric.latency_ns * 1e-9)
        facts.append(f"{fabric.name}: {rate(view.network_bytes_per_s)} a GPU, one way, {latency}")
    return facts


def _columns(gpus: int) -> int:
    return gpus if gpus <= 8 else 8 if gpus <= 32 else 12


def _node(cluster: Cluster, node: int, x: float, y: float, width: float, height: float) -> Markup:
    group = cluster.group_of(node * cluster.gpus_per_node)
    gpu = (group or cluster).gpu
    gpus = min(cluster.gpus_per_node, _MOST_GPUS)
    columns = _columns(gpus)
    pitch = min(_PITCH, (width - 2 * _MARGIN) / columns)
    first_x = x + (width - columns * pitch) / 2
    squares = [
        Markup('<rect class="gpu" x="{:.1f}" y="{:.1f}" width="{w:.1f}" height="{w:.1f}" rx="2"/>').format(
            first_x + index % columns * pitch + 2, y + _MARGIN + index // columns * _PITCH, w=pitch - 4
        )
        for index in range(gpus)
    ]
    of_all = f" of {cluster.gpus_per_node}" if gpus < cluster.gpus_per_node else ""
    lines = (f"node {node}", f"{gpus}{of_all} x {gpu.id}", (group or cluster).node.interconnect)
    texts = [
        Markup('<text class="middle" x="{:.1f}" y="{:.1f}">{}</text>').format(
            x + width / 2, y + height - 3 * _TEXT + 14 + _TEXT * line, text
        )
        for line, text in enumerate(lines)
    ]
    box = Markup('<rect class="node" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="6"/>').format(
        x + 1, y + 1, width - 2, height - 1
    )
    return box + Markup("").join([*squares, *texts])


def _network(cluster: Cluster, shown: int, width: float) -> Markup:
    right = shown * (width + _GAP) - _GAP
    links = Markup("").join(
        Markup('<path d="M{x:.1f} {}V{}"/>').format(_BAR, _BAR + _LINKS, x=node * (width + _GAP) + width / 2)
        for node in range(shown)
    )
    is_domain = cluster.domain_size >= cluster.world_size
    name = cluster.node.interconnect if is_domain else cluster.fabric.kind
    speed = cluster.link_bytes_per_s if is_domain else cluster.network_bytes_per_s
    bar = Markup('<rect class="network" x="1" y="1" width="{:.1f}" height="{}" rx="6"/>').format(right - 2, _BAR - 2)
    text = Markup('<text class="middle" x="{:.1f}" y="18">{}</text>').format(right / 2, f"{name}, {rate(speed)} a GPU")
    return links + bar + text
