"""Compares published runs of Megatron's family with `presim compose --framework megatron` of the same plans.

    python validation/framework_plans.py TABLE [--only ID,ID...] [--each N] [--minutes M]

TABLE has the columns of `presim validate`. Rows are read as there, but only the plan, the precision, the adapters and
what a row says in words are taken. What it does not say is as for any user: from Megatron-Bridge's own recipe, where it
has one. Without ``--only``, up to N rows are run of each family (source, model, GPU), those with the shortest pipelines
first, until M minutes have passed. Writes `results/framework-plans.md`; rows that are in it stay unless ``--only``
names them. Rows of one command are compared with one prediction. Rows that cannot be expressed are counted by reason.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import re
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from presim.cli.script import sentences
from presim.errors import PresimError
from presim.evaluation.options import EvaluationOptions
from presim.studies.validation.cases import CannotBuildError, Case, read_cases
from presim.verbs.compose_framework import capture_plan_and_evaluate
from presim_study.composed_page import page
from presim_study.megatron_family.as_composed import ComposedCase, composed_case

RESULT = Path(__file__).parent / "results" / "framework-plans.md"
PREDICTIONS = RESULT.with_name("predictions.csv")  # by whole captures


@dataclasses.dataclass(frozen=True)
class Expressible:
    """A row of the table with its command."""

    case: Case
    composed: ComposedCase

    @property
    def family(self) -> tuple[str, str, str]:
        """Its source, model and GPU."""
        name = self.case.text("id")
        source = "-".join(name.split("-")[:2]) if name.startswith("mlperf") else re.split(r"[-0-9]", name)[0]
        return source, re.split(r" ?[(\[]", self.case.text("model"))[0], self.composed.gpu

    @property
    def length(self) -> tuple[int, int]:
        """What the time of its capture grows with."""
        return self.composed.plan.pipeline, self.composed.plan.virtual


def read_table(path: Path) -> tuple[list[Expressible], Mapping[str, int]]:
    """The rows that a command can express, and how many others there are by reason; without other frameworks' rows."""
    found, reasons = [], collections.Counter[str]()
    for case in read_cases(path):
        try:
            found.append(Expressible(case, composed_case(case)))
        except PresimError as error:
            reasons[_kind(str(error))] += 1
    return found, reasons


def _kind(reason: str) -> str:
    """A reason without what is particular to a row, to count by."""
    if "AMD's" in reason:
        return "AMD's GPUs, which are not emulated"
    if "does not say which" in reason:
        return "one of two precisions, of which the row does not say which"
    return re.split(r" = |; |: | \(", reason)[0]


def predicted(composed: ComposedCase) -> Mapping[str, Any]:
    """What the command says.

    Raises:
        PresimError: the plan is refused, or cannot be captured.
    """
    options = EvaluationOptions(gpu=composed.gpu, world_size=composed.world_size)
    begin, used = time.monotonic(), _cpu_s()
    result = capture_plan_and_evaluate(
        *(composed.model, composed.plan, composed.named_fields, options),
        precision=composed.precision,
        overrides=composed.overrides,
        simulates_all=False,
    ).result
    if result.exit == "out_of_memory" or result.step_time_s is None:
        raise CannotBuildError("does not fit with what Megatron-Bridge's recipe sets")
    return {
        "predicted_s": result.step_time_s,
        "low_s": result.step_time_low_s,
        "high_s": result.step_time_high_s,
        "allocated_gib": result.memory.peak_allocated_bytes / 2**30,
        "memory_gib": result.memory.peak_reserved_bytes / 2**30,
        "took_s": time.monotonic() - begin,
        "cpu_s": _cpu_s() - used,
    }


def compared(row: Expressible, prediction: Mapping[str, Any], captured_error: float | None) -> Mapping[str, Any]:
    """A row of the result. ``captured_error``: the whole capture's."""
    case, composed = row.case, row.composed
    published_s = float(case.text("step_time_s"))
    measured, kind = case.measured_memory()
    memory = prediction["memory_gib" if kind == "reserved" else "allocated_gib"]
    return {
        "id": case.text("id"),
        "family": row.family,
        "run": f"{case.text('model')}, {composed.world_size} {composed.gpu}, {composed.precision}",
        "plan": " ".join(f"{name}{degree}" for name, degree in _degrees(composed) if degree > 1),
        "published_s": published_s,
        **prediction,
        "error": prediction["predicted_s"] / published_s - 1,
        "inside": prediction["low_s"] <= published_s <= prediction["high_s"],
        "memory_error": memory / measured - 1 if measured else None,
        "captured_error": captured_error,
    }


def _degrees(composed: ComposedCase) -> Sequence[tuple[str, int]]:
    plan = composed.plan
    names = ("tp", "pp", "vp", "cp", "ep")
    return list(zip(names, (plan.tensor, plan.pipeline, plan.virtual, plan.context, plan.expert), strict=True))


def _cpu_s() -> float:
    """CPU time of this process and of captures that ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def to_run(rows: Sequence[Expressible], known: Mapping[str, object], each: int) -> list[Expressible]:
    """The rows to predict: up to so many of each family, the families in turn, short pipelines first."""
    families: dict[tuple[str, str, str], list[Expressible]] = {}
    done = collections.Counter(row.family for row in rows if row.case.id in known)
    for row in sorted(rows, key=lambda row: row.length):
        if row.case.id not in known:
            families.setdefault(row.family, []).append(row)
    turns = [
        (done[family] + turn, row.length, row)
        for family, members in families.items()
        for turn, row in enumerate(members)
        if done[family] + turn < each
    ]
    return [row for *_, row in sorted(turns, key=lambda turn: turn[:2])]


def main() -> None:
    """Predict, and write the page after each row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--only", default="", help="ids, separated by commas")
    parser.add_argument("--each", type=int, default=2, help="rows of a family")
    parser.add_argument("--minutes", type=float, default=60, help="after which no further row is begun")
    options = parser.parse_args()
    wanted = list(filter(None, re.split(r"[, ]+", options.only)))
    rows_file = RESULT.with_suffix(".json")
    results = json.loads(rows_file.read_text()) if rows_file.exists() else {}
    table, reasons = read_table(options.table)
    by_id = {row.case.id: row for row in table}
    if missing := [name for name in wanted if name not in by_id]:
        print(f"no row that can be expressed: {', '.join(missing)}", file=sys.stderr)
    chosen = [by_id[name] for name in wanted if name in by_id] if wanted else to_run(table, results, options.each)
    captured = {case.id: case.number("error") for case in read_cases(PREDICTIONS)}
    begin = time.monotonic()
    for row in chosen:
        if time.monotonic() - begin > 60 * options.minutes:
            break
        alike = [other for other in table if other.composed == row.composed]
        try:
            prediction = predicted(row.composed)
            found = {other.case.id: compared(other, prediction, captured.get(other.case.id)) for other in alike}
        except PresimError as error:
            found = {row.case.id: {"id": row.case.id, "family": row.family, "reason": str(error)}}
        print(*found.values(), sep="\n", flush=True)
        results |= found
        rows_file.write_text(json.dumps(results, indent=1) + "\n")
        RESULT.write_text(page(results, len(table), reasons))
    if results:
        RESULT.write_text(page(results, len(table), reasons))


if __name__ == "__main__":
    with sentences():
        main()
