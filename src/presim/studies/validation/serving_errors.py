"""Errors of predicted serving runs by figure, beside their goals; as a table, and as a page."""

from __future__ import annotations

import dataclasses
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from presim.studies.validation.serving_rows import Row
from presim.system.files import encode_csv, write_file

FIGURES = {
    "ttft": ("ttft_mean_ms", "ttft_median_ms"),
    "tpot": ("tpot_mean_ms", "tpot_median_ms"),
    "throughput": ("output_tok_s",),
}
_GOALS = {"tpot": 0.08, "ttft": 0.15, "throughput": 0.08}


def write(rows: list[dict[str, str]], path: Path) -> None:
    """The rows with their predictions, as CSV."""
    write_file(path, encode_csv(list(dict.fromkeys(name for row in rows for name in row)), rows))


@dataclasses.dataclass(frozen=True)
class Errors:
    """Relative errors of one figure over several rows."""

    values: tuple[float, ...]
    inside: int

    @property
    def median(self) -> float:
        """Median of the absolute errors."""
        return statistics.median(map(abs, self.values)) if self.values else math.nan

    @property
    def bias(self) -> float:
        """Median of the signed errors. Above 0, predictions are too high."""
        return statistics.median(self.values) if self.values else math.nan


def errors(rows: Iterable[Row], figure: str) -> Errors:
    """Errors over the rows with a measured and a predicted value."""
    relative_errors, inside = [], 0
    for row in rows:
        measured = next((float(row[name]) for name in FIGURES[figure] if row.get(name)), 0.0)
        if measured > 0 and row.get(f"predicted_{figure}"):
            relative_errors.append(float(row[f"predicted_{figure}"]) / measured - 1)
            bounds = sorted(float(row[f"predicted_{figure}_{bound}"]) for bound in ("low", "high"))
            inside += bounds[0] <= measured <= bounds[1]
    return Errors(tuple(relative_errors), inside)


def report(rows: list[dict[str, str]]) -> str:
    """A summary in Markdown: by figure, and by engine, model and GPU; reasons of rows without a prediction."""
    lines = [
        "# Serving: predicted beside measured",
        "",
        "| rows of | figure | rows | median error | bias | in 80 % interval |",
    ]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups["all"].append(row)
        if row.get("confidence", "").startswith("complete"):
            groups["all complete"].append(row)
        label = (row.get(name, "") for name in ("framework", "model", "gpu", "mode", "gemm_quant"))
        groups[" ".join(part for part in label if part)].append(row)
    for name, members in sorted(groups.items(), key=lambda item: (not item[0].startswith("all"), -len(item[1]))):
        for figure in FIGURES:
            if (figure_errors := errors(members, figure)).values:
                inside = figure_errors.inside / len(figure_errors.values)
                cells = f"{figure_errors.median:.1%} | {figure_errors.bias:+.1%} | {inside:.0%}"
                lines.append(f"| {name} | {figure} | {len(figure_errors.values)} | {cells} |")
    reasons: dict[str, int] = defaultdict(int)
    for row in rows:
        if row.get("reason"):
            reasons[re.sub(r"\s+", " ", row["reason"])[:160]] += 1
    lines += ["", "## Rows without a prediction", ""]
    lines += [f"- {count}: {reason}" for reason, count in sorted(reasons.items(), key=lambda item: -item[1])]
    return "\n".join([*lines, ""])


def summary(rows: list[dict[str, str]]) -> dict[str, Any]:
    """Median errors and their goals, over the rows with a complete configuration."""
    complete = [row for row in rows if row.get("confidence", "complete").startswith("complete")]
    return {figure: (errors(complete, figure).median, goal) for figure, goal in _GOALS.items()}
