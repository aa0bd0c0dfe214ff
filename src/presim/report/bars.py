"""Stacked bars that fill the width of the terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

SMALLEST_SHARE = 0.0005  # smaller parts would be displayed as 0.0%


@dataclasses.dataclass(frozen=True)
class Part:
    """One part of a bar. ``letter`` draws it without colours."""

    name: str
    size: float
    style: str
    letter: str
    figure: str  # shown in the legend


@dataclasses.dataclass(frozen=True)
class Bar:
    """Parts side by side in proportion to their sizes, and a legend below."""

    parts: Sequence[Part]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        plain = console.color_system is None
        total = sum(part.size for part in self.parts)
        shown = [part for part in self.parts if part.size > total * SMALLEST_SHARE]
        line = Text(no_wrap=True)
        for part, cells in zip(shown, apportion([part.size for part in shown], options.max_width)):
            line.append((part.letter if plain else "█") * cells, part.style)
        yield line
        yield from _wrap((_label(part, plain) for part in shown), options.max_width)


def apportion(sizes: Sequence[float], cells: int) -> list[int]:
    """Whole cells in proportion to sizes, by largest remainder; adds up to ``cells`` unless all sizes are 0.

    >>> apportion([2, 1, 1], 5)
    [3, 1, 1]
    """
    total = sum(sizes)
    if not total:
        return [0 for _ in sizes]
    exact = [size / total * cells for size in sizes]
    whole_cells = [int(value) for value in exact]
    by_remainder = sorted(range(len(sizes)), key=lambda index: (whole_cells[index] - exact[index], index))
    for index in by_remainder[: cells - sum(whole_cells)]:
        whole_cells[index] += 1
    return whole_cells


def _label(part: Part, plain: bool) -> Text:
    return Text.assemble((part.letter if plain else "■", part.style), " ", part.name, " ", (part.figure, "bold"))


def _wrap(labels: Iterable[Text], width: int) -> Iterable[Text]:
    """Labels in rows, three spaces apart."""
    row = Text(no_wrap=True)
    for label in labels:
        if row and len(row) + 3 + len(label) > width:
            yield row
            row = Text(no_wrap=True)
        row = Text.assemble(row, "   ", label) if row else label
    if row:
        yield row
