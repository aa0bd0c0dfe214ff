"""An explanation in the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from presim.figures.explanation import Explanation, Gain
from presim.figures.time import Slice
from presim.report.bars import Bar, Part
from presim.report.rendering import json_text
from presim.report.screen import Title, show
from presim.report.tables import section_title
from presim.units import gib, percent, seconds, seconds_range

_WIDTH, _ROWS = 104, 6
_STYLES = {
    "compute": ("green", "c"),
    "communication": ("red", "x"),
    "copy": ("yellow", "y"),
    "host": ("magenta", "h"),
    "launch latency": ("bright_magenta", "l"),
    "synchronisation": ("blue", "s"),
    "device busy": ("grey50", "."),
}


def encode(explanation: Explanation) -> bytes:
    """The explanation as JSON with sorted keys."""
    return json_text(explanation)


def write(explanation: Explanation, file: IO[str] | None = None) -> None:
    """Print the explanation."""
    show(Console(file=file, highlight=False), render(explanation), _WIDTH)


def render(explanation: Explanation) -> RenderableType:
    """The explanation as something rich can print."""
    path = explanation.critical_path
    chain = f"{seconds(path.length_s)}, {path.changes_of_rank} changes of rank"
    limits = Table.grid(padding=(0, 1, 0, 0))
    for limit in explanation.limits[:_ROWS]:
        limits.add_row(Text(limit.name.replace("_", " "), "bold"), limit.statement)
    parts: list[RenderableType] = [
        Title(explanation.script, explanation.cluster),
        section_title("What limits the step", f"step time {seconds(explanation.step_time_s)}"),
        _indent(limits),
        section_title("Critical path", chain),
        _indent(Bar([_part(piece) for piece in path.by_kind])),
        _indent(_slices(path.by_name)),
        section_title("What would help", "each was simulated; a bound is the upper limit of such a gain"),
        _indent(_gains(explanation.gains))
        if explanation.gains
        else _indent(Text("nothing that is worth 2 % of a step")),
    ]
    if explanation.composed_step_time_s is not None:
        caption = f"composed, beside {seconds(explanation.composed_step_time_s)} of the composed plan itself"
        parts += [section_title("Other plans", caption), _indent(_gains(explanation.plans))]
        parts += [_indent(Text(f"not possible: {said}", "dim")) for said in explanation.refused]
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
        table.add_column(name, justify="right" if name else "left", min_width=0 if name else 36, no_wrap=bool(name))
    for gain in gains:
        sign = "+" if gain.memory_change_bytes > 0 else "-"
        memory = f"{sign}{gib(abs(gain.memory_change_bytes))}" if gain.memory_change_bytes else ""
        table.add_row(
            Text.assemble(
                gain.what, (f"  {gain.kind}" if gain.kind == "bound" else "", "yellow"), f"\n  {gain.options}"
            ),
            ("-" if gain.gain_s < 0 else "") + seconds(abs(gain.gain_s)),
            seconds_range(gain.gain_low_s, gain.gain_high_s) if gain.gain_s > 0 else "",
            "" if gain.throughput_ratio is None else f"x {gain.throughput_ratio:.2f}",
            "does not fit" if gain.fits is False else memory,
        )
    return table


def _indent(content: RenderableType) -> RenderableType:
    return Padding(content, (0, 0, 0, 2))
