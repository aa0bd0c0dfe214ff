"""A report as data: the headings, tables, bars and sentences that the terminal prints, for web pages."""

from __future__ import annotations

import io
from typing import Literal, TypeAlias

import msgspec
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from presim.report.bars import SMALLEST_SHARE, Bar
from presim.report.palette import css_classes
from presim.report.screen import Heading, Title
from presim.report.tables import SideBySide

_WIDTH = 120  # of what is kept as the terminal prints it


class HeadingBlock(msgspec.Struct, frozen=True, tag_field="type", tag="heading"):
    """The name of a section with a caption; level 1 is the report's own."""

    name: str
    caption: str
    level: int


class ParagraphBlock(msgspec.Struct, frozen=True, tag_field="type", tag="paragraph"):
    """A sentence or more."""

    text: str


class LinesBlock(msgspec.Struct, frozen=True, tag_field="type", tag="lines"):
    """Lines that are kept as they are."""

    text: str


class TableBlock(msgspec.Struct, frozen=True, tag_field="type", tag="table"):
    """A table; without names of columns it has no header."""

    columns: list[str]
    is_number: list[bool]  # by column: aligned right, never wrapped
    rows: list[list[str]]
    caption: str = ""


class BarPart(msgspec.Struct, frozen=True):
    """A part of a bar with its share of the bar."""

    name: str
    figure: str
    share: float
    css_class: str
    letter: str


class BarBlock(msgspec.Struct, frozen=True, tag_field="type", tag="bar"):
    """A stacked bar with its legend."""

    parts: list[BarPart]


class WaterfallBar(msgspec.Struct, frozen=True):
    """A total, or a change from one total to the next; start and size are shares of the longest bar."""

    name: str
    figure: str
    start: float
    size: float
    kind: Literal["total", "longer", "shorter"]


class WaterfallBlock(msgspec.Struct, frozen=True, tag_field="type", tag="waterfall"):
    """How one time becomes another, part by part."""

    name: str
    bars: list[WaterfallBar]


Block: TypeAlias = HeadingBlock | ParagraphBlock | LinesBlock | TableBlock | BarBlock | WaterfallBlock


def blocks(report: RenderableType) -> list[Block]:
    """The blocks of a report in their order; text, which is a report in lines, is one block."""
    if isinstance(report, str):
        return [LinesBlock(report)]
    return _blocks(report)


def _blocks(report: RenderableType) -> list[Block]:
    match report:
        case Group():
            return [block for part in report.renderables for block in _blocks(part)]
        case Padding():
            return _blocks(report.renderable)
        case SideBySide():
            return [*_blocks(report.left_table), *_blocks(report.right_table)]
        case Title():
            return [HeadingBlock(report.command, report.location, 1)]
        case Heading():
            return [HeadingBlock(report.name, report.caption, 2)]
        case Bar():
            return [bar_block(report)]
        case Table():
            return [_table(report)]
        case str() | Text():
            text = report if isinstance(report, str) else report.plain
            return [ParagraphBlock(text.strip("\n"))] if text.strip() else []
    return [LinesBlock(_printed(report))]


def bar_block(bar: Bar) -> BarBlock:
    """The visible parts of a bar."""
    total = sum(part.size for part in bar.parts)
    parts = [part for part in bar.parts if part.size > total * SMALLEST_SHARE]
    classes = css_classes(part.name for part in parts)
    return BarBlock(
        [
            BarPart(part.name, part.figure, part.size / total, css_class, part.letter)
            for part, css_class in zip(parts, classes)
        ]
    )


def _table(table: Table) -> TableBlock:
    names = [_plain(column.header) for column in table.columns] if table.show_header else []
    cells = [[_plain(cell) for cell in column.cells] for column in table.columns]
    rows = [list(row) for row in zip(*cells)]
    is_number = [column.justify == "right" for column in table.columns]
    caption = " · ".join(_plain(text) for text in (table.title, table.caption) if text)
    return TableBlock(names if any(names) else [], is_number, rows, caption)


def _plain(cell: RenderableType) -> str:
    if isinstance(cell, str):
        return cell
    return cell.plain if isinstance(cell, Text) else _printed(cell)


def _printed(report: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=_WIDTH, highlight=False, markup=False, emoji=False, color_system=None)
    with console.capture() as printed:
        console.print(report)
    return "\n".join(line.rstrip() for line in printed.get().splitlines())
