"""A matrix of plans and clusters as a table and as a picture."""

from __future__ import annotations

from html import escape

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from presim.planner.matrix import ClusterRun, Matrix, plan_words
from presim.planner.objectives import OBJECTIVES
from presim.report.screen import Title

_CELL, _HEIGHT, _LEFT, _TOP = 150, 44, 170, 40
_WORST_LOSS = 1.0  # from here on cells are darkest
_MISSING = "#d9d9d9"


def write(matrix: Matrix) -> None:
    """Print the matrix."""
    Console(highlight=False, markup=False, emoji=False).print(render(matrix))


def render(matrix: Matrix) -> RenderableType:
    """The matrix as something rich can print: plans below each other, clusters side by side."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("best plan of")
    for name in matrix.clusters:
        table.add_column(f"on {name}", justify="right", no_wrap=True)
    for plan_of, name in enumerate(matrix.clusters):
        table.add_row(name, *(_cell(matrix, matrix.cell(plan_of, on)) for on in range(len(matrix.clusters))))
    plans = [
        Text(f"{name}: {plan_words(plan) or 'no plan fits'}", "dim")
        for name, plan in zip(matrix.clusters, matrix.plans)
    ]
    reasons = [
        Text(f"{matrix.clusters[run.plan_of]}'s plan on {matrix.clusters[run.on]}: {run.words}", "dim")
        for run in matrix.runs
        if run.words
    ]
    notes = [Text(note, "dim") for note in matrix.notes]
    body = Group(table, Text(), *plans, *reasons, *notes)
    return Group(Title(f"search {matrix.subject} --matrix", f"by {matrix.objective}"), Padding(body, (1, 0, 0, 2)))


def _cell(matrix: Matrix, run: ClusterRun) -> str:
    if run.value is None:
        return "-"
    figure = OBJECTIVES[matrix.objective].format(run.value)
    return figure if run.plan_of == run.on else f"{figure} ({run.loss or 0.0:+.1%})"


def picture(matrix: Matrix) -> str:
    """The matrix as SVG: the darker a cell, the more a cluster loses with another cluster's plan."""
    count = len(matrix.clusters)
    width, height = _LEFT + count * _CELL + 10, _TOP + count * _HEIGHT + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        f'font-size="13"><rect width="{width}" height="{height}" fill="white"/>'
    ]
    for index, name in enumerate(matrix.clusters):
        x, y = _LEFT + (index + 0.5) * _CELL, _TOP + (index + 0.5) * _HEIGHT
        parts.append(f'<text x="{x}" y="{_TOP - 12}" text-anchor="middle">on {escape(name)}</text>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">plan of {escape(name)}</text>')
    for run in matrix.runs:
        x, y = _LEFT + run.on * _CELL, _TOP + run.plan_of * _HEIGHT
        shade, ink = _colours(run)
        title = escape(run.words or plan_words(matrix.plans[run.plan_of]))
        parts.append(
            f'<g><title>{title}</title><rect x="{x}" y="{y}" width="{_CELL - 2}" height="{_HEIGHT - 2}" '
            f'fill="{shade}"/>'
            f'<text x="{x + _CELL / 2}" y="{y + _HEIGHT / 2 + 4}" text-anchor="middle" fill="{ink}">'
            f"{escape(_cell(matrix, run))}</text></g>"
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _colours(run: ClusterRun) -> tuple[str, str]:
    """Fill and text: one hue from light to dark, which readers tell apart without colour vision."""
    if run.loss is None:
        return _MISSING, "black"
    share = min(max(run.loss, 0.0) / _WORST_LOSS, 1.0) ** 0.5
    red, green, blue = (round(light + (dark - light) * share) for light, dark in ((222, 8), (235, 48), (247, 107)))
    return f"rgb({red},{green},{blue})", "white" if share > 0.5 else "black"
