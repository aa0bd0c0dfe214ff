"""Summary of the output table: errors by source, GPU, parallelism and size, and the largest errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np

from presim.studies.validation.run_groups import GROUPS, sort_key, source
from presim.system.files import write_file

Row = Mapping[str, str]
_WORST = 15


def write_summary(rows: Sequence[Row], path: Path, tests: Collection[str] = ()) -> None:
    """Write the summary as Markdown; ``tests`` as in `summary`."""
    write_file(path, summary(rows, tests=tests).encode())


def summary(
    rows: Sequence[Row], pictures: Mapping[str, str] = MappingProxyType({}), tests: Collection[str] = ()
) -> str:
    """Tables of errors, then the reasons of cases without a prediction, in Markdown.

    ``pictures``: paths of pictures by the title of the table below them. ``tests``: sources in which each row is a test
    case with a model of its own; the table by model omits them.
    """
    parts = ["# Predicted beside measured\n", _coverage(rows)]
    for title, key in GROUPS.items():
        picture = [f"![Predicted over measured, by {title}]({pictures[title]})\n"] if title in pictures else []
        parts += [f"## By {title}\n", *picture, _table(rows, title, key)]
    parts += ["## By model\n", _models(rows, tests)]
    parts += ["## Largest errors\n", _worst(rows)]
    if any(row["reason"] for row in rows):
        parts += ["## Not predicted\n", _reasons(rows)]
    return "\n".join(parts)


def counts(rows: Sequence[Row]) -> str:
    """Range of numbers of GPUs, e.g. ``8 to 512``."""
    numbers = sorted(int(row["n_gpus"]) for row in rows if row.get("n_gpus", "").isdecimal())
    upper = "" if not numbers or numbers[0] == numbers[-1] else f" to {numbers[-1]}"
    return f"{numbers[0] if numbers else ''}{upper}"


def short_source(row: Row) -> str:
    """The name of a source's repository without its owner, or the text before the first comma."""
    return source(row).rpartition("/")[2].partition(",")[0]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


def _errors(rows: Iterable[Row], column: str) -> list[float]:
    return [value for row in rows if (value := _number(row.get(column, ""))) is not None]


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of the values are at most."""
    return float(np.quantile(values, share, method="inverted_cdf"))


def statistics(rows: Sequence[Row]) -> list[str]:
    """The cells below `HEADINGS` for a group of rows."""
    times, memory = _errors(rows, "error"), _errors(rows, "memory_error")
    sizes = [abs(error) for error in times]
    cells = [str(len(times))]
    if times:
        covered = [_within(row) for row in rows if _number(row["error"]) is not None]
        cells += [percent(quantile(sizes, 0.5)), percent(quantile(sizes, 0.9)), signed(quantile(times, 0.5))]
        cells += [percent(sum(size <= 0.2 for size in sizes) / len(sizes)), percent(sum(covered) / len(covered))]
    else:
        cells += [""] * 5
    cells += [str(len(memory)), percent(quantile([abs(error) for error in memory], 0.5)) if memory else ""]
    return [*cells, signed(quantile(memory, 0.5)) if memory else ""]


def _within(row: Row) -> bool:
    """Whether the measured step time lies in the predicted interval."""
    low, high, measured = (
        _number(row.get(name, "")) for name in ("low_step_time_s", "high_step_time_s", "step_time_s")
    )
    return low is not None and high is not None and measured is not None and low <= measured <= high


def percent(value: float) -> str:
    """0.123 as 12.3%."""
    return f"{value:.1%}"


def signed(value: float) -> str:
    """0.123 as +12.3%."""
    return f"{value:+.1%}"


HEADINGS = (
    "step times",
    "median error",
    "p90",
    "median sign",
    "within 20 %",
    "in 80 % interval",
    "memory",
    "median error",
    "median sign",
)


def _table(rows: Sequence[Row], title: str, key: Callable[[Row], str]) -> str:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if _number(row["error"]) is not None or _number(row["memory_error"]) is not None:
            groups.setdefault(key(row), []).append(row)
    lines = [[name, *statistics(groups[name])] for name in sorted(groups, key=sort_key)]
    lines.append(["all", *statistics([row for group in groups.values() for row in group])])
    return markdown([title, *HEADINGS], lines)


def _models(rows: Sequence[Row], tests: Collection[str]) -> str:
    """Errors of step times by model, GPU and number format, without the sources in ``tests``."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        name = short_source(row)
        if name not in tests and _number(row["error"]) is not None:
            numbers = row.get("precision", "").partition(" (")[0]
            groups.setdefault((name, row.get("model", ""), row["gpu"].partition(" (")[0], numbers), []).append(row)
    lines = []
    for (name, model, gpu, numbers), group in sorted(groups.items()):
        errors = _errors(group, "error")
        middle = signed(quantile(errors, 0.5)) if len(errors) > 1 else ""
        span = " to ".join(dict.fromkeys(signed(error) for error in (min(errors), max(errors))))
        lines.append([name, model, f"{counts(group)} {gpu}".strip(), numbers, str(len(group)), middle, span])
    return markdown(["source", "model", "GPUs", "numbers", "step times", "median error", "least to most"], lines)


def _worst(rows: Sequence[Row]) -> str:
    rows_with_error = [row for row in rows if _number(row["error"]) is not None]
    worst = sorted(rows_with_error, key=lambda row: (-abs(float(row["error"])), row["id"]))[:_WORST]
    cells = [
        [
            row["id"],
            source(row),
            row.get("model", ""),
            row["gpu"],
            row["step_time_s"],
            row["predicted_step_time_s"],
            signed(float(row["error"])),
            row["provenance"],
        ]
        for row in worst
    ]
    return markdown(["case", "source", "model", "GPU", "measured s", "predicted s", "error", "provenance"], cells)


_MEASURED = ("step_time_s", "peak_mem_gib", "peak_allocated_gib", "peak_reserved_gib")


def _coverage(rows: Sequence[Row]) -> str:
    built = sum(row["outcome"] != "" for row in rows)
    full = [row for row in rows if row["outcome"] == "out_of_memory"]
    ran = sum(any(row.get(column) for column in _MEASURED) for row in full)
    out_of_memory = f"{len(full)} of them out of memory in the emulation ({ran} that were measured all the same)"
    return f"{len(rows)} cases, {built} built, {out_of_memory}.\n"


def _reasons(rows: Sequence[Row]) -> str:
    return markdown(["cases", "reason"], [[str(count), text] for text, count in reasons(rows)])


def reasons(rows: Sequence[Row]) -> list[tuple[str, int]]:
    """Reasons for cases without a prediction or error, with counts, most frequent first. Numbers in them become N."""
    count_by_reason: dict[str, int] = {}
    for row in rows:
        if row["reason"]:
            text = re.sub(r"\d+(\.\d+)?", "N", row["reason"])[:160].replace("|", "/")
            count_by_reason[text] = count_by_reason.get(text, 0) + 1
    return sorted(count_by_reason.items(), key=lambda item: (-item[1], item[0]))


def markdown(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table."""
    rule = ["---"] * len(headings)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (headings, rule, *lines)) + "\n"
