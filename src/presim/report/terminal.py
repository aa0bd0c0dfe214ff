"""The result as one screen of a terminal."""

from __future__ import annotations

import io
from typing import IO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from presim.report import content, training
from presim.report.bars import Bar
from presim.report.screen import Heading, Title, show
from presim.report.tables import analysis_blocks, collective_table, held_table, operator_table, phase_table, rank_table
from presim.result import Result

WIDTH = 104  # of the whole report; narrower terminals get less
_LIMITS_SHOWN, _LIMIT_SHARE = 4, 0.03


def write(result: Result, file: IO[str] | None = None, *, console: Console | None = None) -> None:
    """Print the report, by default to standard output."""
    console = console or Console(file=file, highlight=False, markup=False, emoji=False)
    show(console, render(result), WIDTH)


def svg(result: Result, width: int = WIDTH) -> str:
    """The report as a picture of a terminal, for documents and pull requests."""
    console = Console(
        record=True,
        width=width,
        file=io.StringIO(),
        force_terminal=True,
        highlight=False,
        markup=False,
        emoji=False,
        color_system="truecolor",
    )
    write(result, console=console)
    console.print()  # the frame of the picture covers its last line
    return console.export_svg(title="presim")


def render(result: Result) -> RenderableType:
    """The report as something rich can print."""
    parts: list[RenderableType] = [Title(result.job.script or "trace", content.rank_and_cluster(result))]
    if result.partial:
        parts.append(Text(content.PARTIAL))
    if failed := content.failure(result):
        parts.append(Text.assemble((f"✗ {failed[0]}: ", "bold red"), failed[1], "\n"))
    parts.append(_headline(result))
    has_step_time = result.step_time_s is not None
    if has_step_time:
        parts += [Heading("Time", content.time_caption(result)), _indent(Bar(content.time_parts(result)))]
    if has_step_time and result.steps.phases:
        parts += [Heading("Phases of a step", content.phase_caption(result)), phase_table(result)]
    if result.memory.peak_reserved_bytes:
        parts += [Heading("Memory in GiB", result.memory.verdict), _indent(Bar(content.memory_parts(result)))]
    if result.memory.fits is False and result.memory.by_module:
        parts += [Heading("Memory by module at the peak"), held_table(result)]
    if has_step_time and result.limits:
        parts += [Heading("What limits the step"), _limits(result)]
    if len(result.ranks) > 1:
        parts += [Heading("Ranks"), rank_table(result)]
    if has_step_time and result.operators:
        parts += [operator_table(result)]
    if has_step_time and result.collectives:
        parts += [Heading("Communication"), collective_table(result)]
    parts += analysis_blocks(result)
    parts += [Heading("Confidence"), _confidence(result)]
    if result.training is not None:
        parts += [Text(), training.render(result.training)]
    return Group(*parts)


def _headline(result: Result) -> RenderableType:
    cells = content.headline(result)
    table = Table.grid(expand=True, padding=(0, 2, 0, 0))
    for _ in cells:
        table.add_column()
    table.add_row(*(Text(cell.label, "dim") for cell in cells))
    table.add_row(*(Text(cell.value, f"bold {cell.style}") for cell in cells))
    table.add_row(*(Text(cell.remark, "dim") for cell in cells))
    return table


def _limits(result: Result) -> RenderableType:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(style="bold", max_width=13)
    table.add_column()
    shown = [limit for limit in result.limits[:_LIMITS_SHOWN] if limit.share >= _LIMIT_SHARE] or result.limits[:1]
    for limit in shown:
        table.add_row(limit.name.replace("_", " "), Text.assemble(limit.statement, " ", (limit.advice, "dim")))
    return _indent(table)


def _confidence(result: Result) -> RenderableType:
    table = Table.grid(padding=(0, 1, 0, 0))
    for sentence in (*result.notes, *result.not_modelled):
        table.add_row(Text("-", "dim"), Text(sentence, "dim"))
    lines: list[RenderableType] = [Text(line) for line in (content.origins(result), content.energy(result)) if line]
    return _indent(Group(*lines, table))


def _indent(content: RenderableType) -> RenderableType:
    return Padding(content, (0, 0, 0, 2))
