"""The answer of `presim deploy` as an HTML page: the front with the SLO, and latencies of the best over its load."""

from __future__ import annotations

from collections.abc import Sequence

from presim.report.blocks import LinesBlock
from presim.report.drawings.drawing import Drawing
from presim.report.drawings.lines import Axes, Line, line_chart
from presim.report.sections import page
from presim.result.deployments import DeployResult, EstimatedDeployment, SimulatedDeployment
from presim.serving.deployments.report_lines import text
from presim.serving.deployments.sentences import ordered

_ESTIMATED, _SIMULATED, _LIMIT, _QUEUE = "--part-compute", "--part-decode", "--bad", "--part-queued"
_DASHES = "6 3"


def render(answer: DeployResult) -> str:
    """The page."""
    title = f"Best: {answer.best.deployment}" if answer.best else "No deployment serves this"
    return page(title, "", [LinesBlock(text(answer)), *_front(answer), *_curves(answer)])


def _line(name: str, points: Sequence[tuple[float, float]], colour: str, dashes: str = "") -> Line:
    ordered_points = sorted(points)
    return Line(name, [x for x, _ in ordered_points], [y for _, y in ordered_points], colour, dashes=dashes)


def _plans(name: str, plans: Sequence[EstimatedDeployment | SimulatedDeployment], colour: str) -> Line:
    """Plans as points, each with what a pointer over it shows."""
    x = [plan.tokens_per_s_per_user or 0.0 for plan in plans]
    y = [plan.tokens_per_s_per_gpu or 0.0 for plan in plans]
    return Line(name, x, y, colour, is_points=True, titles=[_hover(plan) for plan in plans])


def _front(answer: DeployResult) -> list[Drawing]:
    """Throughput against interactivity: the estimated front, simulated plans within the SLO, and its limit."""
    met = [
        entry
        for entry in answer.simulated
        if entry.verdict == "meets" and entry.tokens_per_s_per_user and entry.tokens_per_s_per_gpu is not None
    ]
    lines = [
        _plans(name, plans, colour)
        for name, plans, colour in (("estimated", answer.pareto, _ESTIMATED), ("simulated", met, _SIMULATED))
        if plans
    ]
    if not lines:
        return []
    if "tpot" in answer.slo:
        limit = 1e3 / answer.slo["tpot"]
        highest = max(rate for line in lines for rate in line.y if rate is not None)
        lines.append(_line("SLO", [(limit, 0.0), (limit, highest)], _LIMIT, _DASHES))
    axes, name = Axes("tokens/s of a user", "tokens/s per GPU"), "Tokens/s per GPU over tokens/s of a user"
    return [Drawing(name, line_chart(lines, axes, name))]


def _hover(entry: EstimatedDeployment | SimulatedDeployment) -> str:
    """A deployment as a pointer over it shows it."""
    per_gpu, per_user, ttft_ms = entry.tokens_per_s_per_gpu, entry.tokens_per_s_per_user, entry.ttft_ms
    speeds = f"{per_gpu or 0.0:,.0f} tokens/s/GPU, {per_user or 0.0:,.0f} tokens/s of a user"
    return f"{entry.deployment}: {speeds}, TTFT {ttft_ms or 0.0:,.0f} ms, {entry.basis}"


def _curves(answer: DeployResult) -> list[Drawing]:
    """Latencies of the best over the rate, with the SLO and the rate from which on queues grow."""
    confirmation = answer.confirmation
    if confirmation is None:
        return []
    drawings = []
    for name, statistic in ordered(answer.slo_statistics).items():
        key = f"{statistic}_{name}_ms"
        points = [(entry.request_rate, entry.figures[key]) for entry in confirmation.load_curve if key in entry.figures]
        if not points:
            continue
        limit, highest = answer.slo[name], max(figure for _, figure in points)
        queue_rate = confirmation.queue_rate
        lines = [
            _line(f"{statistic} {name.upper()}", points, _ESTIMATED),
            _line("SLO", [(points[0][0], limit), (points[-1][0], limit)], _LIMIT, _DASHES),
            _line("queues grow", [(queue_rate, 0.0), (queue_rate, highest)], _QUEUE, "2 3"),
        ]
        title = f"{statistic} {name.upper()} of the best over its load"
        drawings.append(Drawing(title, line_chart(lines, Axes("requests/s", "ms"), title)))
    return drawings
