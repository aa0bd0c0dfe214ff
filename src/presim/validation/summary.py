"""The output table in a few lines: errors by source, GPU, parallelism and size, and the worst cases by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from presim.files import write_file
from presim.validation.groups import GROUPS, in_order, source

Row = Mapping[str, str]
# Called measured, and exact to the nanosecond in layers and micro-batches: docs/decisions/computed-truth.md
COMPUTED = "VIA-Research/vTrain:data/ground_truth_single.csv"
_WORST = 15
_MOST_KINDS = 7  # GPUs named in a line of the short table
_NOISY = "Megatron-LM"  # tests of some tenths of a second a step, which wait for their hosts; 209 are called noisy


def write_summary(rows: Sequence[Row], path: Path) -> None:
    """Write the summary as Markdown."""
    write_file(path, summary(rows).encode())


def summary(rows: Sequence[Row], pictures: Mapping[str, str] = MappingProxyType({})) -> str:
    """Tables of errors, then what was not predicted and why; ``pictures``: paths, by the title of the table below."""
    parts = ["# Predicted beside measured\n", _coverage(rows)]
    for title, key in GROUPS.items():
        picture = [f"![Predicted over measured, by {title}]({pictures[title]})\n"] if title in pictures else []
        parts += [f"## By {title}\n", *picture, _table(rows, title, key)]
    parts += ["## By model\n", _models(rows)]
    parts += ["## Largest errors\n", _worst(rows)]
    if any(row["reason"] for row in rows):
        parts += ["## Not predicted\n", _reasons(rows)]
    return "\n".join(parts)


def in_short(groups: Mapping[str, Sequence[Row]]) -> str:
    """A short table: a line for each group that has figures."""
    lines = []
    for name, group in groups.items():
        compared = [row for row in group if _figures(row)]
        if compared:
            times, median, _, _, within, covered, memory, memory_median, _ = _statistics(compared)
            lines.append([name, _gpus(compared), times, median, within, covered, memory, memory_median])
    return markdown(["runs of", "GPUs", "step times", *_HEADINGS[1:2], *_HEADINGS[4:8]], lines)


def _figures(row: Row) -> int:
    return sum(_number(row.get(column, "")) is not None for column in ("error", "memory_error"))


def _gpus(rows: Sequence[Row]) -> str:
    """How many of which kinds, e.g. ``8 to 512 A100, H100``, or ``1 to 512 of 8 kinds``."""
    kinds = sorted({match[0] for row in rows if (match := re.search(r"\b(GB|[ABHLV])\d+S?\b", row["gpu"]))})
    named = ", ".join(kinds) if len(kinds) <= _MOST_KINDS else f"of {len(kinds)} kinds"
    return f"{_counts(rows)} {named}".strip()


def _counts(rows: Sequence[Row]) -> str:
    """How many GPUs, e.g. ``8 to 512``."""
    counts = sorted(int(row["n_gpus"]) for row in rows if row.get("n_gpus", "").isdigit())
    most = "" if not counts or counts[0] == counts[-1] else f" to {counts[-1]}"
    return f"{counts[0] if counts else ''}{most}"


def ablation(runs: Mapping[str, Sequence[Row]]) -> str:
    """What buys accuracy: runs over the same cases side by side, in the cases that all of them predicted."""
    predicted = [{row["id"] for row in rows if row["error"]} for rows in runs.values()]
    common = set.intersection(*predicted)
    lines = []
    for name, rows in runs.items():
        chosen = [row for row in rows if row["id"] in common]
        lines.append([name, *_statistics(chosen)[:6]])
    return "## What buys accuracy\n\n" + markdown(["prices", *_HEADINGS[:6]], lines) + "\n"


def _number(text: str) -> float | None:
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


def _errors(rows: Iterable[Row], column: str) -> list[float]:
    return [value for row in rows if (value := _number(row.get(column, ""))) is not None]


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 1000 * len(ordered)) // 1000) - 1)]


def _statistics(rows: Sequence[Row]) -> list[str]:
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
    """The measured step time lies in the predicted interval."""
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


_HEADINGS = (
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
    lines = [[name, *_statistics(groups[name])] for name in sorted(groups, key=in_order)]
    lines.append(["all", *_statistics([row for group in groups.values() for row in group])])
    return markdown([title, *_HEADINGS], lines)


def _models(rows: Sequence[Row]) -> str:
    """Errors of step times by model, GPU and number format; the tests of `_NOISY`, each a model, are left out."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        name = source(row).rpartition("/")[2].partition(",")[0]
        if name != _NOISY and _number(row["error"]) is not None:
            numbers = row.get("precision", "").partition(" (")[0]
            groups.setdefault((name, row.get("model", ""), row["gpu"].partition(" (")[0], numbers), []).append(row)
    lines = []
    for (name, model, gpu, numbers), group in sorted(groups.items()):
        errors = _errors(group, "error")
        middle = signed(quantile(errors, 0.5)) if len(errors) > 1 else ""
        span = " to ".join(dict.fromkeys(signed(error) for error in (min(errors), max(errors))))
        lines.append([name, model, f"{_counts(group)} {gpu}".strip(), numbers, str(len(group)), middle, span])
    return markdown(["source", "model", "GPUs", "numbers", "step times", "median error", "least to most"], lines)


def _worst(rows: Sequence[Row]) -> str:
    known = [row for row in rows if _number(row["error"]) is not None]
    worst = sorted(known, key=lambda row: (-abs(float(row["error"])), row["id"]))[:_WORST]
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
    found = f"{len(full)} of them out of memory in the emulation ({ran} that were measured all the same)"
    return f"{len(rows)} cases, {built} built, {found}.\n"


def _reasons(rows: Sequence[Row]) -> str:
    return markdown(["cases", "reason"], [[str(count), text] for text, count in reasons(rows)])


def reasons(rows: Sequence[Row]) -> list[tuple[str, int]]:
    """Why cases have no prediction or no error, and how many, most first; numbers in them are N."""
    counts: dict[str, int] = {}
    for row in rows:
        if row["reason"]:
            text = re.sub(r"\d+(\.\d+)?", "N", row["reason"])[:160].replace("|", "/")
            counts[text] = counts.get(text, 0) + 1
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def markdown(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table."""
    rule = ["---"] * len(headings)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (headings, rule, *lines)) + "\n"
