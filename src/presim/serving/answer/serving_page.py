"""Render the prediction as one self-contained HTML page with SVG charts."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from presim.serving.answer import fleet as fleets
from presim.serving.answer import metrics, over_time, screen, serving_record
from presim.serving.answer.token_cost import TokenPrices
from presim.serving.deployments.prediction import Prediction
from presim.system.files import write_file

Floats = NDArray[np.float64]
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 600, 220, 90, 34
_LINES = 4  # colours of lines
_POINTS = 400
_DASHES = ("none", "6 3", "2 3", "8 3 2 3")  # tell lines apart without colours
_STYLE = (
    ":root{--paper:#fff;--ink:#1c2024;--dim:#60646c;--line:#c1c8cd;--card:#f6f7f9;"
    "--l0:#5686f2;--l1:#d55e00;--l2:#95525b;--l3:#8b9097}"  # of presim.report.palette
    "@media (prefers-color-scheme:dark){:root{--paper:#14171a;--ink:#eceef0;--dim:#9ba1a6;--line:#4c5155;"
    "--card:#1c2024;--l2:#c98891}}"
    "*{box-sizing:border-box}body{font:15px/1.5 system-ui,sans-serif;max-width:76rem;margin:0 auto;"
    "padding:1.5rem 1rem 4rem;color:var(--ink);background:var(--paper)}h1{margin:0 0 1rem;font-size:1.25rem}"
    "pre{background:var(--card);padding:1rem;border-radius:.5rem;overflow:auto;font-size:13px}"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(28rem,100%),1fr));gap:1.5rem 1rem}"
    "figure{margin:0}figcaption{font-weight:600}svg{display:block;width:100%;height:auto}svg text{font-size:11px;"
    "fill:var(--dim)}.axes{stroke:var(--line)}"
    + "".join(
        f".l{line}{{stroke:var(--l{line});stroke-dasharray:{_DASHES[line]}}}"
        f"rect.l{line}{{fill:var(--l{line});stroke:none}}"
        for line in range(_LINES)
    )
)
Line = tuple[str, Floats, Floats]


def write(prediction: Prediction, path: Path, prices: TokenPrices) -> None:
    """Write the page."""
    write_file(path, render(prediction, prices).encode())


def render(prediction: Prediction, prices: TokenPrices) -> str:
    """The page."""
    deployment = prediction.deployment
    title = f"{deployment.engine.model.name} on {deployment.gpus} x {deployment.gpu_ids}"
    console = Console(file=io.StringIO(), width=110, highlight=False, markup=False, emoji=False)
    console.print(screen.screen(serving_record.result_of(prediction, prices=prices)))
    return frame(title, console.file.getvalue(), _all(prediction))  # type: ignore[attr-defined]  # a StringIO


def frame(title: str, text: str, pictures: Sequence[tuple[str, str]]) -> str:
    """A page of the report's text and of figures, each a name and an SVG."""
    figures = "".join(f"<figure><figcaption>{html.escape(name)}</figcaption>{svg}</figure>" for name, svg in pictures)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>presim: {html.escape(title)}</title><style>{_STYLE}</style></head><body><h1>{html.escape(title)}</h1>"
        f'<pre>{html.escape(text)}</pre><section class="charts">{figures}</section></body></html>\n'
    )


def _all(prediction: Prediction) -> list[tuple[str, str]]:
    served, steps = prediction.served, prediction.served.steps
    values = metrics.latencies_ms(served)
    percent = np.linspace(0, 100, 201)
    charts = []
    for name in ("ttft", "tpot", "e2el") if served.finished.any() else ():
        curve = np.percentile(values[name], percent)
        charts.append((f"{name.upper()} by percentile of requests", draw([(name.upper(), percent, curve)], "%", "ms")))
    if len(steps):
        over = over_time.engines(steps, _POINTS)
        blocks = max(prediction.deployment.engine.limits.num_gpu_blocks - 1, 1)
        lines = [("running", over.time_s, over.running), ("waiting", over.time_s, over.waiting)]
        charts.append(("Requests over time, all engines", draw(lines, "s", "requests")))
        used = over.used / (blocks * over.replicas) * 100
        charts.append(("KV cache in use, mean of all engines", draw([("in use", over.time_s, used)], "s", "%")))
        busy = over.active > 0
        took = over.step_ms[busy] / over.active[busy]
        charts.append(("Time of a step, mean of all engines", draw([("step", over.time_s[busy], took)], "s", "ms")))
    if prediction.fleet is not None:
        charts.append(("Engines over time", draw(_engines(prediction), "s", "engines")))
    arrivals = np.sort(served.sent[served.sent >= 0]) / 1e9
    finish_times = np.sort(served.last[served.finished]) / 1e9
    counted: list[Line] = [
        ("sent", arrivals, np.arange(1.0, len(arrivals) + 1)),
        ("finished", finish_times, np.arange(1.0, len(finish_times) + 1)),
    ]
    return [*charts, ("Requests sent and finished", draw([_thin(line) for line in counted], "s", "requests"))]


def _engines(prediction: Prediction) -> list[Line]:
    """Number of engines in each state over time, as step lines."""
    over = fleets.engines(prediction.served)
    time = np.repeat(over.time / 1e9, 2)[1:-1]
    names = [name for name, counts in over.counts.items() if counts.any()]
    return [(name, time, np.repeat(over.counts[name], 2).astype(float)) for name in names]


def _thin(line: Line) -> Line:
    every = max(1, len(line[1]) // _POINTS)
    return line[0], line[1][::every], line[2][::every]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def draw(lines: Sequence[Line], across: str, up: str) -> str:
    """Draw lines as an SVG; both axes span the range of the data."""
    xs, ys = np.concatenate([line[1] for line in lines]), np.concatenate([line[2] for line in lines])
    if not len(xs):
        return "<svg></svg>"
    x_min, x_max = float(xs.min()), float(xs.max())
    low, high = min(0.0, float(ys.min())), float(ys.max())
    top = 10 if len(lines) == 1 else 28  # names of lines stand above them
    wide, tall = _WIDTH - _LEFT - 10, _HEIGHT - _BOTTOM - top

    def point(x: float, y: float) -> str:
        along, above = (x - x_min) / ((x_max - x_min) or 1), (y - low) / ((high - low) or 1)
        return f"{_LEFT + wide * along:.1f},{top + tall * (1 - above):.1f}"

    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">']
    parts.append(f'<path class="axes" d="M{_LEFT} {top}V{top + tall}H{_WIDTH - 10}" fill="none"/>')
    for line_index, (name, x, y) in enumerate(lines):
        points = " ".join(point(float(x_value), float(y_value)) for x_value, y_value in zip(x, y))
        shade = f"l{line_index % _LINES}"
        parts.append(f'<polyline class="{shade}" points="{points}" fill="none" stroke-width="1.5"/>')
        if len(lines) > 1:
            mark = _LEFT + 8 + 110 * line_index
            parts.append(f'<path class="{shade}" d="M{mark} 12h18" fill="none" stroke-width="2.5"/>')
            parts.append(f'<text x="{mark + 22}" y="16">{html.escape(name)}</text>')
    parts.append(f'<text x="{_LEFT - 4}" y="{top + 8}" text-anchor="end">{_number(high)} {up}</text>')
    parts.append(f'<text x="{_LEFT - 4}" y="{top + tall}" text-anchor="end">{_number(low)}</text>')
    parts.append(f'<text x="{_LEFT}" y="{_HEIGHT - 10}">{_number(x_min)} {across}</text>')
    parts.append(f'<text x="{_WIDTH - 10}" y="{_HEIGHT - 10}" text-anchor="end">{_number(x_max)} {across}</text></svg>')
    return "".join(parts)
