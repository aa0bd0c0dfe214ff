"""Compares published runs of torchtitan with `presim compose --framework torchtitan` of the same plans.

    python validation/torchtitan_plans.py TABLE [--only ID,ID...]

TABLE has the columns of `presim validate`. The plan, compilation, recomputation and FP8 are taken from each row; the
rest is at the defaults. Writes `results/torchtitan-plans.md`; the file of the same name with `.json` keeps the rows.
"""

from __future__ import annotations

import datetime
import statistics
import time
from collections.abc import Mapping
from pathlib import Path

from presim.cli.script import sentences
from presim.composition.plan import Plan
from presim.evaluation.options import EvaluationOptions
from presim.studies.validation.cases import CannotBuildError, Case
from presim.studies.validation.gpus import gpu_of
from presim.verbs.compose_framework import capture_plan_and_evaluate
from presim_study.published_plans import compare, error_of, step_times

RESULT = Path(__file__).parent / "results" / "torchtitan-plans.md"
MODELS = {"Llama3.1-8B": "llama3-8b", "Llama3.1-70B": "llama3-70b", "Llama3.1-405B": "llama3-405b"}
PASSES = {"bf16": (), "float8 rowwise": ("fp8-row",)}  # precision -> passes
ASYNC = "--compile.enable_async_tensor_parallel"


def plan_of(case: Case) -> tuple[str, Plan, tuple[str, ...]]:
    """The model, the plan and torchtitan's options of a row.

    Raises:
        CannotBuildError: it is of another framework, model or precision, or of a pipeline.
    """
    if case.text("framework") != "torchtitan":
        raise CannotBuildError("not a run of torchtitan's trainer")
    model, passes = MODELS.get(case.text("model")), PASSES.get(case.text("precision"))
    if model is None or passes is None:
        raise CannotBuildError(f"no named model {case.text('model')!r}, or no precision {case.text('precision')!r}")
    if case.count("pp", 1) > 1:
        raise CannotBuildError("a pipeline, whose capture takes all layers")
    compiled = ("fuse-pointwise",) if case.text("compile") == "True" else ()
    selective = ("recompute-selective",) if case.text("act_ckpt").startswith("selective") else ()
    plan = Plan(
        sequence=case.count("seq_len"),
        micro_batch=case.count("micro_batch"),
        global_batch=case.count("global_batch"),
        tensor=case.count("tp", 1),
        sequence_parallel=case.count("tp", 1) > 1,
        context=case.count("cp", 1),
        recompute="full" if case.text("act_ckpt") == "full" else "none",
        passes=(*passes, *compiled, *selective),
    )
    return model, plan, (ASYNC,) if "async TP" in case.text("other") else ()


def predicted(case: Case) -> dict[str, object]:
    """A row of the result."""
    model, plan, arguments = plan_of(case)
    options = EvaluationOptions(gpu=gpu_of(case), world_size=case.count("n_gpus"))
    begin_s = time.monotonic()
    result = capture_plan_and_evaluate(
        model, plan, ["sequence"], options, framework="torchtitan", overrides=arguments
    ).result
    return {
        "run": f"{case.text('model')}, {case.text('n_gpus')} H100, {case.text('precision')}, {case.text('other')}",
        **step_times(case, result),
        "memory_gib": result.memory.peak_reserved_bytes / 2**30,
        "published_gib": case.number("peak_mem_gib"),
        "took_s": time.monotonic() - begin_s,
    }


def page(rows: Mapping[str, Mapping[str, object]]) -> str:
    """The result as a page."""
    errors = {name: error_of(row) for name, row in rows.items()}
    absolute = [abs(error) for error in errors.values()]
    inside = sum(bool(row["inside"]) for row in rows.values())
    lines = [
        "# Published runs of torchtitan, composed from a few of its layers",
        "",
        f"{datetime.date.today()}, by `python validation/torchtitan_plans.py`. Captured with 5 and 7 layers.",
        "",
        f"{len(rows)} rows: median error {statistics.median(absolute):.1%}, largest {max(absolute):.1%}, {inside} "
        "inside the 80 % interval.",
        "",
        "| row | run | published | predicted | error | inside | reserved | published | time |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        published = f"{row['published_gib']:.1f} GiB" if row["published_gib"] else ""
        inside_word = "yes" if row["inside"] else "no"
        lines.append(
            f"| {name} | {row['run']} | {row['published_s']:.4g} s | {row['predicted_s']:.4g} s | {errors[name]:+.1%} "
            f"| {inside_word} | {row['memory_gib']:.1f} GiB | {published} | {row['took_s']:.0f} s |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    with sentences():
        compare(__doc__, RESULT, predicted, page, "torchtitan")
