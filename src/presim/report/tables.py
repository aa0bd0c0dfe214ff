"""The tables of the terminal report."""

from __future__ import annotations

import dataclasses

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from presim.report import content
from presim.report.screen import Heading
from presim.result import OUTSIDE_MODULES, Module, Rank, Result
from presim.units import gib, percent, seconds

ROWS = 8
_NAME_WIDTH = 27
_RANKS_SHOWN = 12
_CAPTION = "parts of the step"


def operator_table(result: Result) -> RenderableType:
    """The operators and modules with the largest share of the step, side by side. Hidden time does not count."""
    operators = Group(Heading("Operators", _CAPTION), Padding(_operators(result), (0, 0, 0, 2)))
    if not any(module.path != OUTSIDE_MODULES for module in result.modules):
        return operators
    modules = Group(Heading("Modules", _CAPTION), Padding(_modules(result), (0, 0, 0, 2)))
    return SideBySide(operators, modules)


@dataclasses.dataclass(frozen=True)
class SideBySide:
    """Two renderables side by side, or one below the other if the width is too small."""

    left_table: RenderableType
    right_table: RenderableType
    width: int = 100

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.max_width < self.width:
            yield Group(self.left_table, self.right_table)
            return
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_row(self.left_table, self.right_table)
        yield table


def _operators(result: Result) -> Table:
    table = _table(("", "left"), ("calls", "right"), ("time", "right"), ("of step", "right"))
    for row in result.operators[:ROWS]:
        table.add_row(shorten(row.name, _NAME_WIDTH), str(row.count), seconds(row.critical_s), percent(row.share))
    return table


def _modules(result: Result) -> Table:
    table = _table(("", "left"), ("time", "right"), ("of step", "right"))
    step_time_s = sum(result.steps.times_s[result.steps.steady_index :][:1]) or 1.0
    for name, module in largest_modules(result.modules):
        table.add_row(shorten(name, _NAME_WIDTH), seconds(module.critical_s), percent(module.critical_s / step_time_s))
    return table


def largest_modules(modules: list[Module], rows: int = ROWS) -> list[tuple[str, Module]]:
    """Modules with the largest share of the step and their indented names, in tree order.

    Modules that contain little more than one submodule are omitted: ``model.layers.*`` is one line, not three.
    """
    shown_modules = [module for module in modules if not _is_wrapper(module, modules)]
    longest = sorted(
        range(len(shown_modules)),
        key=lambda index: (-shown_modules[index].critical_s, -shown_modules[index].seconds, index),
    )[:rows]
    lines: list[tuple[str, Module]] = []
    parents: list[str] = []
    for module in (shown_modules[index] for index in sorted(longest)):
        while parents and not module.path.startswith(parents[-1] + "."):
            parents.pop()
        name = module.path[len(parents[-1]) + 1 :] if parents else module.path
        times = f" x{module.instances}" if module.instances > 1 else ""
        lines.append(("  " * len(parents) + name + times, module))
        parents.append(module.path)
    return lines


def _is_wrapper(module: Module, modules: list[Module]) -> bool:
    return any(
        other.depth == module.depth + 1
        and other.path.startswith(module.path + ".")
        and other.critical_s >= 0.98 * module.critical_s
        for other in modules
    )


def shorten(name: str, width: int) -> Text:
    """Cut the middle of a long name, because its end identifies it."""
    return _name(name if len(name) <= width else f"{name[: width // 2 - 1]}…{name[-(width - width // 2) :]}")


def _name(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="ellipsis")


def collective_table(result: Result) -> RenderableType:
    """Communication by group and kind, most exposed first."""
    table = _table(
        ("", "left"),
        ("group", "left"),
        *((name, "right") for name in ("calls", "bytes", "time", "exposed", "GB/s")),
    )
    for row in result.collectives[:ROWS]:
        group = _name(f"{row.group} ({row.group_size})")
        figures = (gib(row.bytes), seconds(row.seconds), seconds(row.exposed_s), content.rate(row.algorithm_GBps))
        table.add_row(_name(row.kind), group, str(row.count), *figures)
    return Padding(table, (0, 0, 0, 2))


def phase_table(result: Result) -> RenderableType:
    """Phases of a step: how often they run, and their time."""
    table = _table(("", "left"), *((name, "right") for name in ("runs", "each", "in all", "of step")))
    for phase in result.steps.phases[:ROWS]:
        times = (seconds(phase.run_s), seconds(phase.seconds))
        table.add_row(_name(content.phase_name(phase)), str(phase.runs), *times, content.phase_share(phase))
    return Padding(table, (0, 0, 0, 2))


def held_table(result: Result) -> RenderableType:
    """Modules whose blocks were live at the peak of allocated memory."""
    table = _table(("", "left"), ("blocks", "right"), ("bytes", "right"), ("of allocated", "right"))
    for row in result.memory.by_module[:ROWS]:
        share = percent(row.bytes / max(result.memory.peak_allocated_bytes, 1))
        table.add_row(shorten(row.name, 2 * _NAME_WIDTH), str(row.blocks), gib(row.bytes), share)
    return Padding(Group(table, Text(result.memory.advice, "dim")), (0, 0, 0, 2))


def analysis_blocks(result: Result) -> list[RenderableType]:
    """Figures and tables of the analyses of installed packages."""
    parts: list[RenderableType] = []
    for analysis in result.analyses:
        figures = ", ".join(f"{figure.name} {figure.value:.4g} {figure.unit}".rstrip() for figure in analysis.figures)
        parts.append(Heading(analysis.name, figures))
        if analysis.columns:
            table = _table(*((name, "left") for name in analysis.columns))
            for row in analysis.rows[:ROWS]:
                table.add_row(*map(_name, row))
            parts.append(Padding(table, (0, 0, 0, 2)))
    return parts


def module_memory_table(result: Result, rows: int | None = None) -> RenderableType:
    """Peak of allocated memory of each module in each part of the step, and what was alive; parents first."""
    figures = ("peak", "before", "after", "new")
    table = _table(("", "left"), ("", "left"), *((name, "right") for name in figures), ("alive at the peak", "left"))
    for peak in result.memory.modules[:rows]:
        name = "  " * peak.depth + peak.path.rpartition(".")[2] + (f" x{peak.instances}" if peak.instances > 1 else "")
        alive = ", ".join(f"{category.name.replace('_', ' ')} {gib(category.bytes)}" for category in peak.alive[:3])
        sizes = (peak.peak_bytes, peak.before_bytes, peak.after_bytes, peak.new_bytes)
        table.add_row(shorten(name, 2 * _NAME_WIDTH), peak.phase, *map(gib, sizes), _name(alive))
    return Padding(table, (0, 0, 0, 2))


def _table(*columns: tuple[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name, justify in columns:
        figures = justify == "right"  # in narrow terminals, names are cut first
        table.add_column(name, justify="right" if figures else "left", no_wrap=figures)
    return table


def rank_table(result: Result) -> RenderableType:
    """Figures of the captured ranks. Of many ranks: the slowest, the fullest, and those that represent most."""
    names = ("rank", "ranks", "step", "compute", "exposed", "waiting", "bubble", "allocated", "reserved")
    table = _table(*((name, "right") for name in names))
    for rank in _shown(result.ranks):
        times = (rank.step_time_s, rank.compute_s, rank.exposed_communication_s, rank.waiting_s, rank.bubble_s)
        table.add_row(
            f"{rank.rank}" + (" *" if rank.rank == result.job.rank else ""),
            str(rank.represented),
            *map(seconds, times),
            *(gib(value) for value in (rank.peak_allocated_bytes, rank.peak_reserved_bytes)),
        )
    return Padding(table, (0, 0, 0, 2))


def _shown(ranks: list[Rank]) -> list[Rank]:
    if len(ranks) <= _RANKS_SHOWN:
        return ranks
    shown_ranks = {
        max(ranks, key=lambda rank: rank.step_time_s).rank,
        max(ranks, key=lambda r: r.peak_reserved_bytes).rank,
    }
    for rank in sorted(ranks, key=lambda rank: (-rank.represented, rank.rank)):
        if len(shown_ranks) < _RANKS_SHOWN:
            shown_ranks.add(rank.rank)
    return [rank for rank in ranks if rank.rank in shown_ranks]
