"""The answer of `presim deploy` as an HTML page: the front with the SLO, and latencies of the best over its load."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from presim.report.blocks import LinesBlock
from presim.report.drawings.drawing import Drawing
from presim.report.drawings.lines import Axes, Line, line_chart
from presim.report.sections import page
from presim.serving.deployments.deployment_record import text
from presim.serving.deployments.sentences import ordered

_ESTIMATED, _SIMULATED, _LIMIT, _QUEUE = "--part-compute", "--part-decode", "--bad", "--part-queued"
_DASHES = "6 3"


def render(answer: dict[str, Any]) -> str:
    """The page."""
    best = answer["best"]
    title = f"Best: {best['deployment']}" if best else "No deployment serves this"
    return page(title, "", [LinesBlock(text(answer)), *_front(answer), *_curves(answer)])


def _line(name: str, points: Sequence[tuple[float, float]], colour: str, dashes: str = "") -> Line:
    ordered_points = sorted(points)
    return Line(name, [x for x, _ in ordered_points], [y for _, y in ordered_points], colour, dashes=dashes)


def _front(answer: dict[str, Any]) -> list[Drawing]:
    """Throughput against interactivity: the estimated front, simulated plans within the SLO, and its limit."""
    key, across = "tokens_per_s_per_gpu", "tokens_per_s_per_user"
    estimated = [(entry[across], entry[key]) for entry in answer["pareto"]]
    met = [entry for entry in answer["simulated"] if entry.get("verdict") == "meets" and entry.get(across)]
    simulated = [(entry[across], entry[key]) for entry in met]
    if not estimated and not simulated:
        return []
    lines = [_line("estimated", estimated, _ESTIMATED)]
    if simulated:
        points = _line("simulated", simulated, _SIMULATED)
        lines.append(dataclasses.replace(points, is_points=True, titles=[entry["deployment"] for entry in met]))
    if "tpot" in answer["slo"]:
        limit, highest = 1e3 / answer["slo"]["tpot"], max(rate for _, rate in [*estimated, *simulated])
        lines.append(_line("SLO", [(limit, 0.0), (limit, highest)], _LIMIT, _DASHES))
    axes, name = Axes("tokens/s of a user", "tokens/s per GPU"), "Tokens/s per GPU over tokens/s of a user"
    return [Drawing(name, line_chart(lines, axes, name))]


def _curves(answer: dict[str, Any]) -> list[Drawing]:
    """Latencies of the best over the rate, with the SLO and the rate from which on queues grow."""
    curve = answer.get("load_curve") or []
    drawings = []
    for name, statistic in ordered(answer.get("slo_statistics", {})).items() if curve else ():
        key = f"{statistic}_{name}_ms"
        points = [(entry["request_rate"], entry[key]) for entry in curve if key in entry]
        if not points:
            continue
        limit, highest = answer["slo"][name], max(figure for _, figure in points)
        lines = [
            _line(f"{statistic} {name.upper()}", points, _ESTIMATED),
            _line("SLO", [(points[0][0], limit), (points[-1][0], limit)], _LIMIT, _DASHES),
            _line("queues grow", [(answer["queue_rate"], 0.0), (answer["queue_rate"], highest)], _QUEUE, "2 3"),
        ]
        title = f"{statistic} {name.upper()} of the best over its load"
        drawings.append(Drawing(title, line_chart(lines, Axes("requests/s", "ms"), title)))
    return drawings
