"""A projected training in the terminal, as JSON, and as a page with its picture."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from presim.report.bars import Bar, Part
from presim.report.blocks import bar_block
from presim.report.rendering import json_text, template
from presim.report.screen import Heading, Title, show
from presim.result.training import Projection
from presim.system.files import write_file
from presim.units import count, percent, plain, seconds, three_digits

_WIDTH = 104
_PLANE = (720, 200)
_STYLES = {
    "work": ("green", "w"),
    "checkpoints": ("blue", "c"),
    "lost work": ("red", "l"),
    "restarts": ("magenta", "r"),
    "waiting for repairs": ("yellow", "y"),
    "missing replicas": ("bright_black", "m"),
}
ACTIVITIES = tuple(_STYLES)


def encode(projection: Projection) -> bytes:
    """The projection as JSON with sorted keys."""
    return json_text(projection)


def write(projection: Projection, file: IO[str] | None = None) -> None:
    """Print the projection."""
    show(Console(file=file, highlight=False, markup=False, emoji=False), render(projection), _WIDTH)


def render(projection: Projection) -> RenderableType:
    """The projection as something rich can print."""
    table = Table.grid(padding=(0, 3, 0, 0))
    table.add_row(*(Text(name, "dim") for name, _, _ in headline(projection)))
    table.add_row(*(Text(value, "bold") for _, value, _ in headline(projection)))
    table.add_row(*(Text(remark, "dim") for _, _, remark in headline(projection)))
    assumed = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    for row in projection.assumptions:
        assumed.add_row(row.name, row.value, Text(row.source, "dim"))
    return Group(
        Title(projection.script, projection.cluster),
        table,
        Heading("Days by activity", _interruptions(projection)),
        Padding(Bar(parts(projection)), (0, 0, 0, 2)),
        Heading("Checkpoints"),
        Padding(Text(checkpoints(projection)), (0, 0, 0, 2)),
        Heading("Assumptions"),
        Padding(assumed, (0, 0, 0, 2)),
        Padding(Text("\n".join(f"- {text}" for text in projection.not_modelled), "dim"), (0, 0, 0, 2)),
    )


def headline(projection: Projection) -> list[tuple[str, str, str]]:
    """Days, goodput, money and energy, each with a remark."""
    cells = [
        ("days", plain(projection.days.mean), _range(projection.days_low, projection.days_high)),
        ("steps", count(projection.steps), f"of {seconds(projection.step_time_s)}"),
        ("goodput", percent(projection.goodput), f"a failure every {three_digits(projection.mtbf_hours)} h"),
        ("GPU hours", count(projection.gpu_hours), f"{count(projection.tokens)} tokens"),
    ]
    if projection.money is not None:
        cells.append(("price", count(projection.money), "of the GPUs"))
    energies = _range(projection.energy_low_MWh, projection.energy_high_MWh)
    cells.append(("energy", f"{plain(projection.energy_MWh)} MWh", energies))
    if projection.energy_money is not None:
        cells.append(("price", count(projection.energy_money), "of the energy"))
    return cells


def _range(low: float, high: float) -> str:
    return f"{plain(low)} to {plain(high)}"


def parts(projection: Projection) -> list[Part]:
    """Days by activity, in one order, since files sort their keys."""
    total, days = projection.days.mean, projection.spent_days
    return [
        Part(name, days[name], *style, figure=f"{days[name]:.2f} d {percent(days[name] / total)}")
        for name, style in _STYLES.items()
        if name in days
    ]


def checkpoints(projection: Projection) -> str:
    """The checkpoint interval in use and the best one."""
    best, used = projection.best_interval_s, projection.interval_s
    interval = f"every {used / 60:.1f} minutes of work"
    if abs(used - best) > 0.01 * best:
        interval += f"; {best / 60:.1f} minutes would be optimal"
    daly, young = projection.daly_interval_s / 60, projection.young_interval_s / 60
    expected = f"Daly's equation expects {plain(projection.closed_form_days)} days."
    return f"{interval} (Daly: {daly:.1f}, Young: {young:.1f} minutes). {expected}"


def write_page(projection: Projection, path: str | os.PathLike[str]) -> None:
    """Write the projection as a self-contained page."""
    write_file(path, page(projection).encode())


def page(projection: Projection) -> str:
    """The projection as a self-contained HTML page."""
    return template(Path(__file__).with_name("training.html.jinja")).render(
        projection=projection,
        headline=headline(projection),
        bar_parts=bar_block(Bar(parts(projection))).parts,
        checkpoints=checkpoints(projection),
        interruptions=_interruptions(projection),
        chart=_chart(projection),
    )


def _interruptions(projection: Projection) -> str:
    number = f"{projection.failures:.0f}"
    return f"{number} interruption{'' if number == '1' else 's'}"


def _chart(projection: Projection) -> dict[str, Any]:
    """Goodput over the checkpoint interval, with a logarithmic axis."""
    width, height = _PLANE
    points = [
        (width * index / (len(projection.curve) - 1), height * (1 - goodput))
        for index, (_, goodput) in enumerate(projection.curve)
    ]
    first, last = projection.curve[0][0], projection.curve[-1][0]
    return {
        "width": width,
        "height": height,
        "line": " ".join(f"{x:.1f},{y:.1f}" for x, y in points),
        "first": f"{three_digits(first / 60)} min",
        "middle": f"{three_digits(projection.best_interval_s / 60)} min",
        "last": f"{three_digits(last / 60)} min",
    }
