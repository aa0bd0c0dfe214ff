"""What `presim validate` prints about a table of predictions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from presim.studies.validation import serving_errors
from presim.studies.validation.error_summary import reasons

_MOST_REASONS = 12  # most reasons printed; the table and the report list all
Row = Mapping[str, str]


def of_table(content: dict[str, Any]) -> str:
    """The lines of a table that was read back: ``path`` and ``rows``."""
    path, rows = Path(content["path"]), content["rows"]
    if not rows:
        return f"{path}: 0 rows"
    if "predicted_step_time_s" in rows[0]:
        return of_runs(path, rows)
    return of_times(path, rows) if "predicted_time_us" in rows[0] else of_serving(path, rows)


def of_runs(path: Path, rows: Sequence[Row], note: str = "") -> str:
    """Training runs: how many have an error, and why the others have none; ``note`` ends the first line."""
    count = sum(bool(row["error"]) for row in rows)
    lines = [f"{path}: {len(rows)} cases, {count} with a predicted and a measured step time{note}"]
    why = reasons(rows)
    lines += [f"  not predicted or not compared, {number}: {text}" for text, number in why[:_MOST_REASONS]]
    if other_cases := sum(number for _, number in why[_MOST_REASONS:]):
        lines.append(f"  other reasons, {other_cases}: see the column `reason`")
    return "\n".join(lines)


def of_times(path: Path, rows: Sequence[Row], note: str = "") -> str:
    """Collectives or operators; ``note`` ends the first line."""
    count = sum(bool(row["error"]) for row in rows)
    why = Counter(row["reason"] for row in rows if row["reason"]).most_common()
    lines = [f"{path}: {len(rows)} rows, {count} with a predicted and a measured time{note}"]
    return "\n".join([*lines, *(f"  not predicted, {number}: {reason}" for reason, number in why)])


def of_serving(path: Path, rows: list[dict[str, str]], note: str = "") -> str:
    """Serving runs: the median error of each figure, with its goal; ``note`` ends the first line."""
    lines = [f"{path}: {len(rows)} rows{note}"]
    for figure, (error, goal) in serving_errors.summary(rows).items():
        lines.append(f"  {figure}: median error {error:.1%} over complete rows (goal: {goal:.0%})")
    return "\n".join(lines)
