"""The answer of verbs that print a few lines: fit, profile, graph take, network explain, validate --oracle."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from presim.system.files.field_docs import doc

if TYPE_CHECKING:
    from presim.report.blocks import TableBlock


class LineReport(msgspec.Struct, frozen=True):
    """A report in lines, with the figures that the lines are made of."""

    verb: Annotated[str, doc("Verb that wrote it.")]
    lines: Annotated[list[str], doc("What the verb prints.")]
    figures: Annotated[dict[str, Any], doc("The numbers behind the lines, by name; units are in the names.")]
    schema: str = "presim-lines/1"


def line_report(verb: str, lines: Sequence[str], figures: Mapping[str, Any]) -> LineReport:
    """The answer of a verb; figures may be dataclasses or paths, which become JSON."""
    return LineReport(verb, list(lines), msgspec.to_builtins(dict(figures), str_keys=True, enc_hook=str))


def render(content: LineReport) -> str:
    """The lines."""
    return "\n".join(content.lines)


def encode(content: LineReport) -> bytes:
    """As JSON with sorted keys."""
    return (json.dumps(msgspec.to_builtins(content), indent=1, sort_keys=True) + "\n").encode()


def page(content: LineReport) -> str:
    """An HTML page: the lines, and a table of each list of figures."""
    from presim.report import sections
    from presim.report.blocks import HeadingBlock, LinesBlock

    tables = [
        part
        for name, rows in content.figures.items()
        if _is_table(rows)
        for part in (HeadingBlock(name.replace("_", " "), "", 2), _table(rows))
    ]
    return sections.page(f"presim {content.verb}", "", [LinesBlock(render(content)), *tables])


def _is_table(rows: Any) -> bool:
    return isinstance(rows, list) and bool(rows) and all(isinstance(row, dict) for row in rows)


def _table(rows: Sequence[Mapping[str, Any]]) -> TableBlock:
    """Rows with the columns of the first; only columns of words and numbers."""
    from presim.report.blocks import TableBlock

    names = [name for name, value in rows[0].items() if isinstance(value, str | int | float)]
    is_number = [not isinstance(rows[0][name], str) for name in names]
    return TableBlock(
        [name.replace("_", " ") for name in names],
        is_number,
        [[_cell(row.get(name)) for name in names] for row in rows],
    )


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)
