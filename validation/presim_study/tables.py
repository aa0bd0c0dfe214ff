"""Tables for presim's own pages about its accuracy: figures of the README, and what buys accuracy."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from presim.validation.summary import HEADINGS, counts, markdown, short_source, statistics

Row = Mapping[str, str]
# The table calls them measured, but they are exact to the nanosecond in layers and micro-batches, so they were
# computed: docs/decisions/computed-truth.md
COMPUTED = "VIA-Research/vTrain:data/ground_truth_single.csv"
NOISY = "Megatron-LM"  # its functional tests: short, host-bound steps; it calls 209 of them noisy
_LARGE = 10  # figures of a source that has a line of its own in the README


def in_short(rows: Sequence[Row]) -> str:
    """A table for the README: sources with ten figures or more, those with most first, the others as one, and all.

    All once without the tests of `NOISY`, which its source calls noisy, too.
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(short_source(row), []).append(row)
    sizes = {name: sum(map(_figures, group)) for name, group in groups.items()}
    large = sorted((name for name in groups if sizes[name] >= _LARGE), key=lambda name: (-sizes[name], name))
    others = [row for name, group in groups.items() if name not in large for row in group]
    chosen = {**{name: groups[name] for name in large}, "others": others, "all": rows}
    if NOISY in groups:
        chosen[f"all but {NOISY}"] = [row for name, group in groups.items() if name != NOISY for row in group]
    lines = []
    for name, group in chosen.items():
        times, median, _, _, within, covered, memory, memory_median, _ = statistics(group)
        with_figures = [row for row in group if _figures(row)]
        hardware = "" if name.split()[0] in ("others", "all") else _gpus(with_figures)
        if with_figures:
            lines.append([name, hardware, times, median, within, covered, memory, memory_median])
    return markdown(["runs of", "GPUs", "step times", *HEADINGS[1:2], *HEADINGS[4:8]], lines)


def _figures(row: Row) -> int:
    return sum(row.get(column, "") != "" for column in ("error", "memory_error"))


def _gpus(rows: Sequence[Row]) -> str:
    """How many of which kinds, e.g. ``8 to 512 A100, H100``."""
    kinds = sorted({match[0] for row in rows if (match := re.search(r"\b(GB|[ABHLV])\d+S?\b", row["gpu"]))})
    return f"{counts(rows)} {', '.join(kinds)}".strip()


def ablation(runs: Mapping[str, Sequence[Row]]) -> str:
    """What buys accuracy: runs over the same cases side by side, in the cases that all of them predicted."""
    predicted = [{row["id"] for row in rows if row["error"]} for rows in runs.values()]
    common = set.intersection(*predicted)
    lines = []
    for name, rows in runs.items():
        chosen = [row for row in rows if row["id"] in common]
        lines.append([name, *statistics(chosen)[:6]])
    return "## What buys accuracy\n\n" + markdown(["prices", *HEADINGS[:6]], lines) + "\n"
