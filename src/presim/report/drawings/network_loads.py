"""The network in a page: its links in the colour of their load at the busiest moment, and the load over the step."""

from __future__ import annotations

import math

from markupsafe import Markup

from presim.report.drawings.drawing import Drawing
from presim.report.drawings.lines import LARGE, Axes, Line, line_chart
from presim.result.step_figures import LinkLoads, Vertex
from presim.units import seconds

_ROW, _TALLEST, _WIDTH = 90, 640, 1000
_CLASSES = ((90, "load-full", "90 % and more"), (50, "load-high", "50 to 90 %"), (10, "load-some", "10 to 50 %"))
_NO_LOAD = ("load-none", "below 10 %")
# A kind of link has the colour of its farther end, the same in every job.
_ENDS = {"gpu": "compute", "nvswitch": "optimizer-state", "nic": "input", "leaf": "communication", "spine": "gradient"}
_FAR_ENDS = {"core": "buffer", "switch": "activation"}
_USUAL = (
    "The cluster's file describes no [network]: this is the usual one of its fabric, without oversubscription, and "
    "transfers do not slow each other on it."
)
_LOAD = (
    "A load is the bytes of collectives over what the link carries; above 100 %, the library moves fewer bytes than a "
    "ring, or its price is faster than the datasheet's links."
)


def network_drawings(loads: LinkLoads) -> list[Drawing]:
    """The drawn network, where it is small enough, and the load of the busiest link of each kind over the step."""
    if loads.sentence or not any(any(line) for line in loads.by_kind.values()):
        return []
    moments = len(next(iter(loads.by_kind.values())))
    step_s = (loads.to_ns - loads.from_ns) / 1e9
    middles = [(moment + 0.5) * step_s / moments * 1e3 for moment in range(moments)]
    lines = [
        Line(kind, middles, [float(value) for value in values], _colour(kind)) for kind, values in loads.by_kind.items()
    ]
    chart = line_chart(lines, Axes("ms of the step", "% of the bandwidth"), "Load of links over the step", LARGE)
    notes = [*(() if loads.is_described else (_USUAL,)), _LOAD]
    if loads.left_out:
        notes.append(f"Not counted: {', '.join(loads.left_out)}.")
    means = "; ".join(f"{kind} {sum(values) / moments:.0f} %" for kind, values in loads.by_kind.items())
    over_time = Drawing(
        "Load of links",
        chart,
        f"The busiest link of each kind. Mean over the step: {means}.",
        tuple(notes),
        is_wide=True,
    )
    if not loads.vertices:
        return [over_time]
    busiest = max(range(moments), key=lambda moment: sum(values[moment] for values in loads.by_kind.values()))
    moment_text = f"{seconds(busiest * step_s / moments)} to {seconds((busiest + 1) * step_s / moments)}"
    caption = f"{loads.gpus} GPUs at the busiest moment of the step, {moment_text}."
    return [Drawing("Network", _network(loads, busiest), caption, is_wide=True), over_time]


def _colour(kind: str) -> str:
    return f"--part-{(_ENDS | _FAR_ENDS).get(kind.rpartition(' - ')[2], 'other')}"


def _network(loads: LinkLoads, moment: int) -> Markup:
    rows: dict[float, list[Vertex]] = {}
    for vertex in loads.vertices:
        rows.setdefault(vertex.y, []).append(vertex)
    height = min(_ROW * len(rows), _TALLEST)
    radius = max(1.5, min(6.0, _WIDTH / max(map(len, rows.values())) / 3))
    dots = [
        Markup('<circle cx="{:.1f}" cy="{:.1f}" r="{:.1f}" class="{}"><title>{}</title></circle>').format(
            vertex.x * _WIDTH, vertex.y * height, radius, "gpu" if vertex.kind == "gpu" else "switch", vertex.name
        )
        for vertex in loads.vertices
    ]
    names = [
        Markup('<text x="4" y="{:.1f}">{}</text>').format(y * height - 14, _row_name(row)) for y, row in rows.items()
    ]
    svg = Markup('<svg class="network" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        _WIDTH,
        height,
        f"Network of {loads.gpus} GPUs with the load of its links",
        Markup("").join([*_links(loads, moment, height), *dots, *names]),
    )
    entries = [_NO_LOAD, *((css_class, text) for _, css_class, text in reversed(_CLASSES))]
    legend = Markup("").join(
        Markup('<li><i style="background:var(--{})"></i>{}</li>').format(css_class, text) for css_class, text in entries
    )
    return svg + Markup('<ul class="legend">{}</ul>').format(legend)


def _row_name(row: list[Vertex]) -> str:
    kinds = dict.fromkeys(vertex.kind for vertex in row)
    return ", ".join(f"{kind} ({sum(vertex.kind == kind for vertex in row)})" for kind in kinds)


def _links(loads: LinkLoads, moment: int, height: int) -> list[Markup]:
    widest = max((bandwidth for _, _, bandwidth, _ in loads.links), default=1.0)
    marks = []
    for lower, upper, bandwidth, percents in loads.links:
        first, second = loads.vertices[lower], loads.vertices[upper]
        load = percents[moment]
        css_class = next((name for least, name, _ in _CLASSES if load >= least), _NO_LOAD[0])
        marks.append(
            Markup('<path class="{}" stroke-width="{:.2f}" d="{}"><title>{}</title></path>').format(
                css_class,
                4 * math.sqrt(bandwidth / widest),
                _path(first, second, height),
                f"{first.name} - {second.name}: {load} % of {bandwidth / 1e9:.0f} GB/s",
            )
        )
    return marks


def _path(first: Vertex, second: Vertex, height: int) -> str:
    """A straight link, or an arc within a row, whose links would hide each other."""
    x1, y1, x2, y2 = first.x * _WIDTH, first.y * height, second.x * _WIDTH, second.y * height
    if y1 != y2:
        return f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"
    bend = y1 - min(0.4 * _ROW, 10 + abs(x2 - x1) / 6)
    return f"M{x1:.1f} {y1:.1f}Q{(x1 + x2) / 2:.1f} {bend:.1f} {x2:.1f} {y2:.1f}"
