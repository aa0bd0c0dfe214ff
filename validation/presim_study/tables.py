"""Tables for presim's own pages about its accuracy: figures of the README, and what buys accuracy."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from presim.studies.validation.error_summary import HEADINGS, counts, markdown, statistics

Row = Mapping[str, str]
# The table calls them measured, but they are exact to the nanosecond in layers and micro-batches, so they were
# computed: docs/decisions/computed-truth.md
COMPUTED = "VIA-Research/vTrain:data/ground_truth_single.csv"
NOISY = "Megatron-LM"  # its functional tests: short, host-bound steps; it calls 209 of them noisy
_MOST_KINDS = 7  # GPUs named in a line of the short table


def in_short(groups: Mapping[str, Sequence[Row]]) -> str:
    """A short table: a line for each group that has figures."""
    lines = []
    for name, group in groups.items():
        compared = [row for row in group if _figures(row)]
        if compared:
            times, median, _, _, within, covered, memory, memory_median, _ = statistics(compared)
            lines.append([name, _gpus(compared), times, median, within, covered, memory, memory_median])
    return markdown(["runs of", "GPUs", "step times", *HEADINGS[1:2], *HEADINGS[4:8]], lines)


def _figures(row: Row) -> int:
    return sum(row.get(column, "") != "" for column in ("error", "memory_error"))


def _gpus(rows: Sequence[Row]) -> str:
    """How many of which kinds, e.g. ``8 to 512 A100, H100``, or ``1 to 512 of 8 kinds``."""
    kinds = sorted({match[0] for row in rows if (match := re.search(r"\b(GB|[ABHLV])\d+S?\b", row["gpu"]))})
    named = ", ".join(kinds) if len(kinds) <= _MOST_KINDS else f"of {len(kinds)} kinds"
    return f"{counts(rows)} {named}".strip()


def ablation(runs: Mapping[str, Sequence[Row]]) -> str:
    """What buys accuracy: runs over the same cases side by side, in the cases that all of them predicted."""
    predicted = [{row["id"] for row in rows if row["error"]} for rows in runs.values()]
    common = set.intersection(*predicted)
    lines = []
    for name, rows in runs.items():
        chosen = [row for row in rows if row["id"] in common]
        lines.append([name, *statistics(chosen)[:6]])
    return "## What buys accuracy\n\n" + markdown(["prices", *HEADINGS[:6]], lines) + "\n"
