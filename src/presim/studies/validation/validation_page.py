"""The HTML page of a table of `presim validate`: its summary, and a row for each case."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from presim.report import sections
from presim.report.blocks import HeadingBlock, LinesBlock, TableBlock
from presim.studies.validation import printed

_SUBJECTS = ("id", "framework", "model", "collective", "operator", "op", "gpu", "n_gpus", "size_bytes", "mode")
_FIGURES = ("measured", "predicted", "error", "time_us", "step_time_s")
_MOST_ROWS = 2000  # a browser's table; the file has all


def page(content: dict[str, Any]) -> str:
    """The page; columns without a value in any row are left out."""
    rows: list[dict[str, str]] = content["rows"]
    names = [name for name in (rows[0] if rows else {}) if _is_shown(name) and any(row.get(name) for row in rows)]
    heading = HeadingBlock("Cases", _caption(len(rows)), 2)
    return sections.page(
        "presim validate", content["path"], [LinesBlock(printed.of_table(content)), heading, _table(names, rows)]
    )


def _is_shown(name: str) -> bool:
    return name in _SUBJECTS or name == "reason" or name.startswith(_FIGURES) or name.endswith("_error")


def _caption(count: int) -> str:
    return f"the first {_MOST_ROWS:,} of {count:,}; the table has all" if count > _MOST_ROWS else f"{count:,} rows"


def _table(names: Sequence[str], rows: Sequence[dict[str, str]]) -> TableBlock:
    is_number = [name not in _SUBJECTS and name != "reason" for name in names]
    cells = [[row.get(name, "") for name in names] for row in rows[:_MOST_ROWS]]
    return TableBlock([name.replace("_", " ") for name in names], is_number, cells)
