"""The result of `presim explain` in the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from presim.report.bars import Bar, Part
from presim.report.rendering import json_text
from presim.report.screen import Heading, Title, show
from presim.result.explanation import CapturedCandidate, Explanation, Gain
from presim.result.time import Slice
from presim.units import gib, percent, seconds, seconds_range

_WIDTH, _ROWS = 104, 6
_BY = {"command": "the command"}
_STYLES = {
    "compute": ("green", "c"),
    "communication": ("red", "x"),
    "copy": ("yellow", "y"),
    "host": ("magenta", "h"),
    "launch latency": ("bright_magenta", "l"),
    "synchronisation": ("blue", "s"),
    "device busy": ("grey50", "."),
}
KINDS = tuple(_STYLES)  # of pieces of the critical path


def encode(explanation: Explanation) -> bytes:
    """The explanation as JSON with sorted keys."""
    return json_text(explanation)


def write(explanation: Explanation, file: IO[str] | None = None) -> None:
    """Print the explanation."""
    show(Console(file=file, highlight=False, markup=False, emoji=False), render(explanation), _WIDTH)


def render(explanation: Explanation) -> RenderableType:
    """The explanation as something rich can print."""
    path = explanation.critical_path
    chain = f"{seconds(path.length_s)}, {path.changes_of_rank} changes of rank"
    limits = Table.grid(padding=(0, 1, 0, 0))
    for limit in explanation.limits[:_ROWS]:
        limits.add_row(Text(limit.name.replace("_", " "), "bold"), limit.statement)
    parts: list[RenderableType] = [
        Title(explanation.script, explanation.cluster),
        Heading("What limits the step", f"step time {seconds(explanation.step_time_s)}"),
        _indent(limits),
        Heading("Critical path", chain),
        _indent(Bar([_part(piece) for piece in path.by_kind])),
        _indent(_slices(path.by_name)),
        Heading("What would help", "simulated gains; a bound is the upper limit of a gain"),
        _indent(_gains(explanation.gains))
        if explanation.gains
        else _indent(Text("no candidate gains 2 % of a step or more")),
    ]
    if explanation.composed_step_time_s is not None:
        caption = f"composed; the composed current plan takes {seconds(explanation.composed_step_time_s)}"
        parts += [Heading("Other plans", caption), _indent(_gains(explanation.plans))]
    parts += [_indent(Text(f"not possible: {reason}", "dim")) for reason in explanation.refused]
    if explanation.confirmed is not None:
        captures = explanation.confirmed
        caption = (
            f"gains by {_BY.get(captures.by, captures.by)}; the current step takes {seconds(captures.step_time_s)}"
        )
        parts += [Heading("Captured", caption), _indent(_captured(captures.rows))]
        parts += [
            _indent(Text(f"{row.change} was not captured: {row.words}", "dim")) for row in captures.rows if row.words
        ]
    return Group(*parts)


def _part(piece: Slice) -> Part:
    style, letter = _STYLES.get(piece.name, ("white", "?"))
    return Part(piece.name, piece.seconds, style, letter, f"{seconds(piece.seconds)} {percent(piece.share)}")


def _slices(slices: Sequence[Slice]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    for piece in slices[:_ROWS]:
        table.add_row(piece.name, seconds(piece.seconds), percent(piece.share))
    return table


def _gains(gains: Sequence[Gain]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("", "gain", "80 % interval", "tokens/s", "memory"):
        table.add_column(name, justify="right" if name else "left", min_width=0 if name else 24, no_wrap=bool(name))
    for gain in gains:
        table.add_row(
            Text.assemble(
                gain.change, (f"  {gain.kind}" if gain.kind == "bound" else "", "yellow"), f"\n  {gain.options}"
            ),
            _signed_s(gain.gain_s),
            seconds_range(gain.gain_low_s, gain.gain_high_s) if gain.gain_s > 0 else "",
            _times(gain.throughput_ratio),
            "does not fit" if gain.fits is False else _memory(gain.memory_change_bytes),
        )
    return table


def _captured(rows: Sequence[CapturedCandidate]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("", "composed", "captured", "80 % interval", "tokens/s", "memory"):
        table.add_column(name, justify="right" if name else "left", min_width=0 if name else 16, no_wrap=bool(name))
    for row in rows:
        if row.gain_s is None:
            continue
        interval = (row.gain_low_s or 0.0, row.gain_high_s or 0.0)
        table.add_row(
            Text(row.change),
            _signed_s(row.composed_gain_s),
            _signed_s(row.gain_s),
            seconds_range(*interval) if row.gain_s > 0 else "",
            _times(row.throughput_ratio),
            "does not fit" if row.fits is False else _memory(row.memory_change_bytes or 0),
        )
    return table


def _signed_s(gain_s: float | None) -> str:
    return "" if gain_s is None else ("-" if gain_s < 0 else "") + seconds(abs(gain_s))


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"x {ratio:.2f}"


def _memory(change_bytes: int) -> str:
    return f"{'+' if change_bytes > 0 else '-'}{gib(abs(change_bytes))}" if change_bytes else ""


def _indent(content: RenderableType) -> RenderableType:
    return Padding(content, (0, 0, 0, 2))
