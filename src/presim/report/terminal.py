"""The result as one screen of a terminal."""

from __future__ import annotations

import io
import math
from typing import IO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from presim.report.bars import Bar, Part
from presim.report.screen import Title, show
from presim.report.tables import collective_table, held_table, operator_table, rank_table, section_title
from presim.result import Result
from presim.units import GIB, count, percent, seconds, seconds_range, three_digits

WIDTH = 104  # of the whole report; narrower terminals get less
_FAILURES = {
    "out_of_memory": "out of memory",
    "raised": "the script raised",
    "exited": "the script left with an error code",
    "killed": "the script was killed",
}
_CATEGORY_STYLES = {
    "parameter": ("blue", "p"),
    "gradient": ("magenta", "g"),
    "optimizer_state": ("cyan", "o"),
    "activation": ("green", "a"),
    "temporary": ("yellow", "t"),
    "input": ("bright_blue", "i"),
    "buffer": ("bright_magenta", "b"),
    "communication": ("bright_yellow", "c"),
    "other": ("bright_white", "?"),
}
_LIMITS_SHOWN, _LIMIT_SHARE, _CAVEATS_SHOWN = 4, 0.03, 4


def write(result: Result, file: IO[str] | None = None, *, console: Console | None = None) -> None:
    """Print the report; to standard output unless told otherwise."""
    console = console or Console(file=file, highlight=False)
    show(console, render(result), WIDTH)


def svg(result: Result, width: int = WIDTH) -> str:
    """The report as a picture of a terminal, for documents and pull requests."""
    console = Console(
        record=True, width=width, file=io.StringIO(), force_terminal=True, highlight=False, color_system="truecolor"
    )
    write(result, console=console)
    console.print()  # the picture's frame cuts into its last line
    return console.export_svg(title="presim")


def render(result: Result) -> RenderableType:
    """The report as something rich can print."""
    parts: list[RenderableType] = [_title(result)]
    if result.exit in _FAILURES:
        parts.append(_failure(result))
    parts.append(_headline(result))
    known = result.step_time_s is not None
    if known:
        parts += [section_title("Time", _time_caption(result)), _time_bar(result)]
    if result.memory.peak_reserved_bytes:
        parts += [section_title("Memory in GiB", result.memory.verdict), _memory_bar(result)]
    if result.memory.fits is False and result.memory.by_module:
        parts += [section_title("What held the memory"), held_table(result)]
    if known and result.limits:
        parts += [section_title("What limits the step"), _limits(result)]
    if len(result.ranks) > 1:
        parts += [section_title("Ranks"), rank_table(result)]
    if known and result.operators:
        parts += [operator_table(result)]
    if known and result.collectives:
        parts += [section_title("Communication"), collective_table(result)]
    parts += [section_title("How sure"), _confidence(result)]
    return Group(*parts)


def _title(result: Result) -> RenderableType:
    job = result.job
    where = f"rank {job.rank} of {job.world_size} · {job.nodes} x {job.gpus_per_node} {job.gpu_name}"
    return Title(job.script or "trace", where)


def _failure(result: Result) -> RenderableType:
    first = (result.error.strip().splitlines() or [""])[0]
    return Text.assemble((f"✗ {_FAILURES[result.exit]}: ", "bold red"), first, "\n")


def _headline(result: Result) -> RenderableType:
    cells = [_step_cell(result), *_throughput_cells(result), *_utilisation_cells(result), _memory_cell(result)]
    table = Table.grid(expand=True, padding=(0, 2, 0, 0))
    for _ in cells:
        table.add_column()
    table.add_row(*(Text(cell[0], "dim") for cell in cells))
    table.add_row(*(Text(cell[1], f"bold {cell[3]}") for cell in cells))
    table.add_row(*(Text(cell[2], "dim") for cell in cells))
    return table


_Cell = tuple[str, str, str, str]  # label, value, remark, style of the value


def _step_cell(result: Result) -> _Cell:
    if result.step_time_s is None or result.step_time_low_s is None or result.step_time_high_s is None:
        return "step time", "unknown", "no step completed", ""
    shown = f"step {result.steps.steady_index + 1}" if result.steps.steady_index else "first step"
    label = "step time" if result.steps.steady else shown if result.steps.count else "whole run"
    doubt = max(result.step_time_high_s - result.step_time_s, result.step_time_s - result.step_time_low_s)
    interval = seconds_range(result.step_time_low_s, result.step_time_high_s) if doubt else ""
    return label, seconds(result.step_time_s), interval, "bright_cyan"


def _throughput_cells(result: Result) -> list[_Cell]:
    rates = [
        (f"{count(value)} {unit}/s")
        for value, unit in ((result.throughput.tokens_per_s, "tokens"), (result.throughput.samples_per_s, "samples"))
        if value is not None
    ]
    return [("throughput", rates[0], rates[1] if len(rates) > 1 else "", "")] if rates else []


def _utilisation_cells(result: Result) -> list[_Cell]:
    if result.mfu is None or result.hfu is None:
        return []
    peak = f"MFU of {result.flops.peak_per_s / 1e12:.0f} TFLOP/s" if result.flops.peak_per_s else "MFU"
    return [(peak, percent(result.mfu), f"HFU {percent(result.hfu)}", "")]


def _memory_cell(result: Result) -> _Cell:
    memory = result.memory
    if not memory.peak_reserved_bytes:
        return "memory", "none", "", ""
    beyond = sum(estimate.bytes for estimate in memory.beyond_allocator)
    used = f"{(memory.peak_reserved_bytes + beyond) / GIB:.1f} of {memory.device_total_bytes / GIB:.1f} GiB"
    words = {True: ("fits", "green"), False: ("does not fit", "red"), None: ("unknown", "")}
    remark, style = words[memory.fits]
    return "device memory", used, remark, style


def _time_caption(result: Result) -> str:
    time = result.time
    if not time.communication_s:
        return ""
    hidden = 1 - (time.exposed_communication_s - time.waiting_s) / time.communication_s
    said = f"{percent(hidden)} of {seconds(time.communication_s)} communication is hidden"
    return f"{said}; {seconds(time.waiting_s)} of waiting for other ranks is exposed" if time.waiting_s else said


def _time_bar(result: Result) -> RenderableType:
    time = result.time
    total = (
        sum((time.compute_s, time.exposed_communication_s, time.exposed_copy_s, time.host_bound_s, time.idle_s))
        or math.inf
    )
    named = (
        ("compute", time.compute_s, "green", "c"),
        ("exposed communication", time.exposed_communication_s, "red", "x"),
        ("exposed copies", time.exposed_copy_s, "yellow", "y"),
        ("waiting for host", time.host_bound_s, "magenta", "h"),
        ("idle", time.idle_s, "grey50", "."),
    )
    return _indent(
        Bar(
            [
                Part(name, size, style, letter, f"{seconds(size)} {percent(size / total)}")
                for name, size, style, letter in named
            ]
        )
    )


def _memory_bar(result: Result) -> RenderableType:
    memory = result.memory
    held = {item.name: item.bytes for item in memory.by_category}
    parts = [
        _memory_part(name.replace("_", " "), held.get(name, 0), *style) for name, style in _CATEGORY_STYLES.items()
    ]
    beyond = sum(estimate.bytes for estimate in memory.beyond_allocator)
    unused = max(memory.peak_reserved_bytes - memory.peak_allocated_bytes, 0)
    parts.append(_memory_part("reserved, unused", unused, "white", "r"))
    parts.append(_memory_part("context and libraries", beyond, "red", "n"))
    parts.append(_memory_part("free", max(memory.headroom_bytes, 0), "grey30", "."))
    return _indent(Bar(parts))


def _memory_part(name: str, size: int, style: str, letter: str) -> Part:
    return Part(name, size, style, letter, f"{three_digits(size / GIB)}")


def _limits(result: Result) -> RenderableType:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(style="bold", max_width=13)
    table.add_column()
    shown = [limit for limit in result.limits[:_LIMITS_SHOWN] if limit.share >= _LIMIT_SHARE] or result.limits[:1]
    for limit in shown:
        table.add_row(limit.name.replace("_", " "), Text.assemble(limit.statement, " ", (limit.advice, "dim")))
    return _indent(table)


def _confidence(result: Result) -> RenderableType:
    shares = [
        f"{percent(share.share)} {share.name} ±{share.uncertainty * 100:.0f}%" for share in result.provenance.by_origin
    ]
    sentences = [*result.notes, *result.not_modelled]
    if len(sentences) > _CAVEATS_SHOWN:
        more = f"{len(sentences) - _CAVEATS_SHOWN} more: see notes and not_modelled in the JSON result"
        sentences = [*sentences[:_CAVEATS_SHOWN], more]
    table = Table.grid(padding=(0, 1, 0, 0))
    for sentence in sentences:
        table.add_row(Text("-", "dim"), Text(sentence, "dim"))
    lines: list[RenderableType] = [Text(", ".join(shares))] if shares and result.step_time_s is not None else []
    return _indent(Group(*lines, table))


def _indent(content: RenderableType) -> RenderableType:
    return Padding(content, (0, 0, 0, 2))
