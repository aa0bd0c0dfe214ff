"""The answer of `presim deploy` as an HTML page: the front with the SLO, and latencies of the best over its load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from presim.serving.answer.serving_page import Line, draw, frame
from presim.serving.deployments.deployment_record import text
from presim.serving.deployments.sentences import ordered


def render(answer: dict[str, Any]) -> str:
    """The page."""
    best = answer["best"]
    title = f"Best: {best['deployment']}" if best else "No deployment serves this"
    return frame(title, text(answer), [*_front(answer), *_curves(answer)])


def _line(name: str, points: Sequence[tuple[float, float]]) -> Line:
    ordered = np.array(sorted(points), float).reshape(-1, 2)
    return name, ordered[:, 0], ordered[:, 1]


def _front(answer: dict[str, Any]) -> list[tuple[str, str]]:
    """Throughput against interactivity: the estimated front, simulated plans within the SLO, and its limit."""
    key, across = "tokens_per_s_per_gpu", "tokens_per_s_per_user"
    lines = [_line("estimated", [(entry[across], entry[key]) for entry in answer["pareto"]])]
    met = [entry for entry in answer["simulated"] if entry.get("verdict") == "meets" and entry.get(across)]
    lines += [_line("simulated", [(entry[across], entry[key]) for entry in met])] if met else []
    highest = max((float(line[2].max()) for line in lines if len(line[2])), default=0.0)
    if "tpot" in answer["slo"] and highest:
        limit = 1e3 / answer["slo"]["tpot"]
        lines.append(_line("SLO", [(limit, 0.0), (limit, highest)]))
    drawn = [line for line in lines if len(line[1])]
    return [("Tokens/s per GPU over tokens/s of a user", draw(drawn, "tokens/s", "tokens/s"))] if drawn else []


def _curves(answer: dict[str, Any]) -> list[tuple[str, str]]:
    """Latencies of the best over the rate, with the SLO and the rate from which on queues grow."""
    curve = answer.get("load_curve") or []
    pictures = []
    for name, statistic in ordered(answer.get("slo_statistics", {})).items() if curve else ():
        key = f"{statistic}_{name}_ms"
        points = [(entry["request_rate"], entry[key]) for entry in curve if key in entry]
        if not points:
            continue
        limit, highest = answer["slo"][name], max(figure for _, figure in points)
        lines = [_line(f"{statistic} {name.upper()}", points)]
        lines.append(_line("SLO", [(points[0][0], limit), (points[-1][0], limit)]))
        lines.append(_line("queues grow", [(answer["queue_rate"], 0.0), (answer["queue_rate"], highest)]))
        pictures.append((f"{statistic} {name.upper()} of the best over its load", draw(lines, "requests/s", "ms")))
    return pictures
