"""A comparison in the terminal, as JSON, and as a self-contained page."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from presim.report.blocks import WaterfallBar
from presim.report.rendering import json_text, template
from presim.report.screen import Heading, Title, show
from presim.report.tables import shorten
from presim.result.comparison import Compared, Comparison, Delta, Difference
from presim.system.files import write_file
from presim.units import count, gib, percent, seconds, seconds_range

_WIDTH, _BAR, _NAME, _ROWS, _SMALLEST = 104, 12, 34, 8, 0.0005


def encode(comparison: Comparison) -> bytes:
    """The comparison as JSON with sorted keys."""
    return json_text(comparison)


def write(comparison: Comparison, file: IO[str] | None = None, *, console: Console | None = None) -> None:
    """Print the comparison."""
    show(console or Console(file=file, highlight=False, markup=False, emoji=False), render(comparison), _WIDTH)


def render(comparison: Comparison) -> RenderableType:
    """The comparison as something rich can print."""
    baseline = comparison.results[0]
    parts: list[RenderableType] = [Title(f"compare with {baseline.label}", baseline.cluster), _side_by_side(comparison)]
    for difference in comparison.differences:
        parts += [Heading(f"{baseline.label} → {difference.label}", headline(difference))]
        if difference.settings:
            parts.append(_indent(Text("\n".join(difference.settings), "dim")))
        for title, rows, figure in lists(difference):
            parts.append(_indent(Group(Heading(title), _table(rows, figure))))
    return Group(*parts)


def lists(difference: Difference) -> list[tuple[str, list[Delta], Any]]:
    """Tables of a difference: title, changed rows, and number format."""
    named = [
        ("Step time", difference.step_time, seconds),
        ("Phases", difference.phases, seconds),
        ("Modules, without submodules", difference.modules, seconds),
        ("Exposed communication", difference.collectives, seconds),
        ("Memory at the peak", difference.memory, gib),
    ]
    return [(title, rows, figure) for title, all_rows, figure in named if (rows := _changed(all_rows))]


def headline(difference: Difference) -> str:
    """The change of the step time and of memory in a sentence."""
    if difference.step_time_change_s is None or difference.speedup is None:
        return "one of them has no step time"
    change = difference.step_time_change_s
    word = "longer" if change > 0 else "shorter"
    text = f"the step is {seconds(abs(change))} {word}" if change else "the step takes as long"
    text += f" ({difference.speedup:.2f}x as fast"
    if difference.throughput_ratio is not None:
        text += f", {difference.throughput_ratio:.2f}x the tokens/s"
    text += "; the 80 % intervals overlap)" if difference.overlapping else ")"
    grown = difference.memory_change_bytes
    return text + (f"; {gib(abs(grown))} {'more' if grown > 0 else 'less'} memory" if grown else "")


def _changed(rows: Sequence[Delta]) -> list[Delta]:
    """Rows with a visible change, relative to the largest figure."""
    largest = max((max(row.before, row.after) for row in rows), default=0.0)
    return [row for row in rows if abs(row.change) > largest * _SMALLEST]


def _side_by_side(comparison: Comparison) -> RenderableType:
    table = _columns("", "step time", "80 % interval", "tokens/s/GPU", "MFU", "memory")
    for result in comparison.results:
        *figures, _, memory, fits = cells(result)
        table.add_row(shorten(result.label, _NAME), *figures, memory if fits != "no" else f"{memory}, does not fit")
    return _indent(table)


def cells(result: Compared) -> list[str]:
    """The figures of one result as a row; empty if unknown."""
    step, low, high = result.step_time_s, result.step_time_low_s, result.step_time_high_s
    return [
        "unknown" if step is None else seconds(step),
        seconds_range(low, high) if low is not None and high is not None else "",
        "" if result.tokens_per_s_per_gpu is None else count(result.tokens_per_s_per_gpu),
        "" if result.mfu is None else percent(result.mfu),
        seconds(result.exposed_communication_s),
        gib(result.peak_reserved_bytes + result.beyond_allocator_bytes),
        {True: "yes", False: "no", None: ""}[result.fits],
    ]


def _table(rows: Sequence[Delta], figure: Any) -> Table:
    table = _columns("", "before", "after", "change")
    table.add_column()
    shown, omitted = list(rows[:_ROWS]), rows[_ROWS:]
    shown = [*shown, *_sum_of_rows(omitted)]
    largest = max(abs(row.change) for row in shown)
    prefix = _common_prefix([row.name for row in rows])
    for row in shown:
        sign = "+" if row.change > 0 else "-"
        bar = Text("█" * max(1, round(abs(row.change) / largest * _BAR)), "red" if row.change > 0 else "green")
        name, change = row.name.removeprefix(prefix), sign + figure(abs(row.change))
        name = name if len(name) <= _NAME else f"…{name[1 - _NAME :]}"
        table.add_row(name, figure(row.before), figure(row.after), change, bar)
    return table


def _common_prefix(names: Sequence[str]) -> str:
    """The module path common to all names except those in brackets."""
    paths = [name.split(".") for name in names if not name.startswith("(")]
    if len(paths) < 2:
        return ""
    levels = zip(*(path[:-1] for path in paths))
    shared = itertools.takewhile(lambda level: len(set(level)) == 1, levels)
    return "".join(f"{level[0]}." for level in shared)


def _sum_of_rows(rows: Sequence[Delta]) -> list[Delta]:
    if not rows:
        return []
    before, after = sum(row.before for row in rows), sum(row.after for row in rows)
    return [Delta(f"{len(rows)} more", before, after, None, None)]


def _columns(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for index, name in enumerate(names):
        table.add_column(name, justify="right" if index else "left", no_wrap=bool(index))
    return table


def _indent(content: RenderableType) -> RenderableType:
    return Padding(content, (0, 0, 0, 2))


def write_page(comparison: Comparison, path: str | os.PathLike[str]) -> None:
    """Write the comparison as a page with a waterfall for each difference."""
    write_file(path, page(comparison).encode())


def page(comparison: Comparison) -> str:
    """The page."""
    shown = [
        {
            "label": difference.label,
            "headline": headline(difference),
            "settings": difference.settings,
            "waterfall": waterfall(comparison.results[0], difference),
            "lists": [
                {
                    "title": title,
                    "rows": [(row.name, figure(row.before), figure(row.after), _signed(row, figure)) for row in rows],
                }
                for title, rows, figure in lists(difference)
            ],
        }
        for difference in comparison.differences
    ]
    rows = [(result.label, result.cluster, cells(result)) for result in comparison.results]
    return template(Path(__file__).with_name("comparison.html.jinja")).render(rows=rows, differences=shown)


def _signed(row: Delta, figure: Any) -> str:
    return ("+" if row.change > 0 else "-") + str(figure(abs(row.change)))


def waterfall(baseline: Compared, difference: Difference, parts: int = 10) -> list[WaterfallBar]:
    """Bars from the step time of the baseline to that of the other; none where one of them has no step time."""
    if difference.step_time_change_s is None or baseline.step_time_s is None:
        return []
    changed = [row for row in difference.step_time if row.change]
    rows = [*changed[:parts], *_sum_of_rows(changed[parts:])]
    steps, position_s = [], baseline.step_time_s
    after = baseline.step_time_s + difference.step_time_change_s
    for row in rows:
        steps.append((row.name, position_s, position_s + row.change, _signed(row, seconds)))
        position_s += row.change
    named = [(baseline.label, 0.0, baseline.step_time_s, seconds(baseline.step_time_s))]
    named += [*steps, (difference.label, 0.0, after, seconds(after))]
    top = max(max(start, end) for _, start, end, _ in named) or 1.0
    return [
        WaterfallBar(
            name,
            figure,
            min(start, end) / top,
            abs(end - start) / top,
            "total" if index in (0, len(named) - 1) else "longer" if end > start else "shorter",
        )
        for index, (name, start, end, figure) in enumerate(named)
    ]
