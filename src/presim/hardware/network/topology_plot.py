"""Draw a network as SVG: GPUs at the bottom, switches above, line width by bandwidth, colour by load."""

from __future__ import annotations

import math
from collections.abc import Sequence

from presim.hardware.network.topology import Topology

# Colour of a link from a utilisation on, highest first, and its opacity.
_LOADS = ((0.9, "#c22", 0.9), (0.5, "#e82", 0.8), (0.1, "#48c", 0.7), (0.0, "#999", 0.5))
_WIDTH, _ROW = 1200, 110
MAX_VERTICES = 4_000  # more would be unreadable
_LEVELS = (
    ("core", 5),
    ("spine", 4),
    ("leaf", 3),
    ("router", 3),
    ("switch", 3),
    ("nvswitch", 1),
    ("pcie", 1),
    ("pcie-switch", 1),
    ("nic", 2),
)


def svg(topology: Topology, loads: Sequence[float] = ()) -> str:
    """The SVG; a very large network is cut to its first vertices.

    ``loads``: utilisation of each link, 0 to 1. A line has the colour of its busier direction, red from 90 % on, and
    both as its title.
    """
    link_ends = list(zip(topology.source.tolist(), topology.target.tolist(), strict=True))
    load_by_ends = dict(zip(link_ends, loads)) if loads else {}
    rows = _rows(topology)
    order = sorted(rows)
    places = {vertex: (round(x * _WIDTH, 1), _ROW * (y * len(order))) for vertex, (x, y) in layout(topology).items()}
    widest = float(topology.bandwidth_Bps.max(initial=1.0))
    lines = [
        _line(
            places[source],
            places[target],
            bandwidth / widest,
            tuple(load_by_ends[pair] for pair in ((source, target), (target, source)) if pair in load_by_ends),
            f"{topology.names[source]} - {topology.names[target]}",
        )
        for (source, target), bandwidth in zip(link_ends, topology.bandwidth_Bps.tolist(), strict=True)
        if source < target and source in places and target in places
    ]
    radius = max(1.5, min(6.0, _WIDTH / max(len(row) for row in rows.values()) / 3))
    dots = [
        f'<circle cx="{x}" cy="{y}" r="{radius:.1f}" fill="{"#4c8" if vertex < topology.gpus else "#47a"}">'
        f"<title>{topology.names[vertex]}</title></circle>"
        for vertex, (x, y) in places.items()
    ]
    names = [
        f'<text x="6" y="{_ROW * (len(order) - height) - _ROW / 2 - 14}" font-size="13" font-family="sans-serif" '
        f'fill="#333">{kind_of_vertex(topology.names[rows[level][0]])} ({len(rows[level])})</text>'
        for height, level in enumerate(order)
    ]
    size = f'width="{_WIDTH}" height="{_ROW * len(order)}"'
    body = "\n".join([*lines, *dots, *names])
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<rect {size} fill="white"/>\n{body}\n</svg>\n'


def layout(topology: Topology) -> dict[int, tuple[float, float]]:
    """Where vertices are drawn, as shares of the width and of the height from the top; at most the first 4,000."""
    rows = _rows(topology)
    order = sorted(rows)
    return {
        vertex: ((column + 0.5) / len(rows[level]), (len(order) - height - 0.5) / len(order))
        for height, level in enumerate(order)
        for column, vertex in enumerate(rows[level])
    }


def _rows(topology: Topology) -> dict[int, list[int]]:
    """Vertices by level, 0 for GPUs."""
    rows: dict[int, list[int]] = {}
    for vertex in range(min(len(topology.names), MAX_VERTICES)):
        rows.setdefault(_level(topology.names[vertex]), []).append(vertex)
    return rows


def _level(name: str) -> int:
    if name.startswith("gpu"):
        return 0
    return next((level for word, level in sorted(_LEVELS, key=lambda pair: -len(pair[0])) if word in name), 3)


def kind_of_vertex(name: str) -> str:
    """What a vertex is, e.g. gpu, nic or leaf: its name without its node and number."""
    return "".join(letter for letter in name.split(".")[-1] if not letter.isdecimal()) or name


def _line(
    begin: tuple[float, float], end: tuple[float, float], share: float, loads: tuple[float, ...], name: str
) -> str:
    width = max(0.3, 4 * math.sqrt(share))
    colour, opacity = next((colour, opacity) for least, colour, opacity in _LOADS if max(loads, default=0.0) >= least)
    stroke = f'stroke="{colour}" stroke-width="{width:.2f}" stroke-opacity="{opacity}"'
    title = f"<title>{name}: {', '.join(f'{load:.0%}' for load in loads)}</title>" if loads else ""
    if begin[1] == end[1]:  # an arc: links within a row would hide each other
        top = round(begin[1] - min(0.8 * _ROW, 10 + abs(end[0] - begin[0]) / 4), 1)
        middle = round((begin[0] + end[0]) / 2, 1)
        return (
            f'<path d="M {begin[0]} {begin[1]} Q {middle} {top} {end[0]} {end[1]}" fill="none" {stroke}>{title}</path>'
        )
    return f'<line x1="{begin[0]}" y1="{begin[1]}" x2="{end[0]}" y2="{end[1]}" {stroke}>{title}</line>'
