"""The page of published runs that were composed from a framework's blocks."""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


def page(results: Mapping[str, Row], expressible: int, reasons: Mapping[str, int]) -> str:
    """Figures by family, then each row, then what was not compared.

    ``expressible``: rows of the table that a command can express; ``reasons``: others by reason.
    """
    rows = [row for row in results.values() if "error" in row]
    refused = [row for row in results.values() if "reason" in row]
    kept = sum("date" in row for row in rows)
    earlier = sum("attention_in_16_bits" in row for row in rows)
    plans = len({row["predicted_s"] for row in rows})
    lines = [
        "# Plans of published runs, captured from Megatron-Bridge",
        "",
        f"{datetime.date.today()}, by `python validation/framework_plans.py`. The plan, the precision, adapters and "
        "what a row says in words are taken from it. What it does not say (recomputation, dispatcher, CUDA graphs) is "
        "as in Megatron-Bridge's own recipe for the model, the GPU and the precision, in whatever release the row is "
        "of; for experts before release 26.06 as in that release. The whole capture's error is that of "
        "`presim validate`, which knows more of each run's set-up.",
        "",
        f"{expressible} rows can be expressed. Of {len(rows)} that were run, of {plans} plans: {_in_words(rows)}."
        + (f" {kept} of them are dense models' or DeepSeek-V3's captures of 2026-11-29." if kept else "")
        + (f" {earlier} were predicted before attention in FP8 was, which their runs had." if earlier else ""),
        "",
        *_families(rows),
        "",
        "## Rows",
        "",
        "| row | run | plan | published | predicted | error | whole capture | inside | memory | time |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *map(_line, rows),
    ]
    if refused:
        lines += ["", "## Not predicted", "", "| row | reason |", "|---|---|"]
        lines += [f"| {row['id']} | {row['reason']} |" for row in refused]
    lines += ["", "## Not expressed", "", "| reason | rows |", "|---|---|"]
    lines += [f"| {reason} | {count} |" for reason, count in sorted(reasons.items(), key=lambda item: -item[1])]
    return "\n".join(lines) + "\n"


def _in_words(rows: Sequence[Row]) -> str:
    errors = [abs(row["error"]) for row in rows]
    inside = sum(bool(row["inside"]) for row in rows)
    return (
        f"median error {statistics.median(errors):.1%}, 90 % within {_ninth(errors):.1%}, largest {max(errors):.1%}, "
        f"{inside} ({inside / len(rows):.0%}) inside the 80 % interval"
    )


def _ninth(errors: Sequence[float]) -> float:
    return statistics.quantiles(errors, n=10, method="inclusive")[-1] if len(errors) > 1 else errors[0]


def _families(rows: Sequence[Row]) -> list[str]:
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row["family"]), []).append(row)
    lines = [
        "| source | model | GPU | rows | median error | largest | inside | whole captures' median |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for family, group in sorted(groups.items()):
        errors = [row["error"] for row in group]
        known = [abs(row["captured_error"]) for row in group if row.get("captured_error") is not None]
        lines.append(
            f"| {' | '.join(family)} | {len(group)} | {statistics.median(map(abs, errors)):.1%} "
            f"| {max(errors, key=abs):+.1%} | {sum(bool(row['inside']) for row in group)} "
            f"| {f'{statistics.median(known):.1%}' if known else ''} |"
        )
    return lines


def _line(row: Row) -> str:
    captured, memory = row.get("captured_error"), row.get("memory_error")
    whole, inside = "" if captured is None else f"{captured:+.1%}", "yes" if row["inside"] else "no"
    return (
        f"| {row['id']} | {row['run']} | {row['plan']} | {row['published_s']:.4g} s | {row['predicted_s']:.4g} s "
        f"| {row['error']:+.1%} | {whole} | {inside} "
        f"| {row['memory_gib']:.1f} GiB{'' if memory is None else f' ({memory:+.1%})'} | {row['took_s']:.0f} s |"
    )
