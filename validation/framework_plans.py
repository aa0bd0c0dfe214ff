"""Compares published runs of Megatron-Bridge with `presim compose --framework megatron` of the same plans.

    python validation/framework_plans.py TABLE [--only ID,ID...]

TABLE has the columns of `presim validate`. What a row does not say is as in Megatron-Bridge's own recipe, so that the
figures are those that a user gets from the plan alone. Writes `results/framework-plans.md`; rows that are in it already
and are not named by ``--only`` stay.
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

RESULT = Path(__file__).parent / "results" / "framework-plans.md"
MODELS = {  # as the table calls them
    "LLAMA3_8B": "llama3-8b",
    "LLAMA3_70B": "llama3-70b",
    "LLAMA3.1_405B": "llama3-405b",
    "Qwen3_30B_a3B": "qwen3-30b-a3b",
    "Qwen3_235B_a22B": "qwen3-235b-a22b",
    "DeepSeekV3": "deepseek-v3",
    "GPT OSS 120B": "gpt-oss-120b",
}
PRECISIONS = (  # what a cell contains, and how Megatron-Bridge's setting is called
    ("MX", "mxfp8"),
    ("FP8-CS", "fp8-current"),
    ("current", "fp8-current"),
    ("NVFP4", "nvfp4"),
    ("BF16", "bf16"),
    ("FP8", "fp8-current"),  # in these tables without a suffix, too
)


def plan_of(case: Case) -> tuple[str, Plan, str, tuple[str, ...]]:
    """The model, the plan, the precision and further fields of a row.

    Raises:
        CannotBuildError: presim has no such model or precision, or the row is of another framework.
    """
    if not case.text("framework").startswith("Megatron-Bridge") or case.text("sharding").startswith("FSDP"):
        raise CannotBuildError("not a run of Megatron-Bridge with the distributed optimizer")
    name, _, adapters = case.text("model").partition(" [LoRA")
    model = MODELS.get(name)
    precision = next((setting for part, setting in PRECISIONS if part in case.text("precision")), None)
    if model is None or precision is None:
        raise CannotBuildError(f"no named model {case.text('model')!r}, or no precision {case.text('precision')!r}")
    plan = Plan(
        sequence=case.count("seq_len"),
        micro_batch=case.count("micro_batch"),
        global_batch=case.count("global_batch"),
        tensor=case.count("tp", 1),
        pipeline=case.count("pp", 1),
        virtual=case.count("vp", 1),
        context=case.count("cp", 1),
        expert=case.count("ep", 1),
        data_style="zero1",
    )
    return model, plan, precision, ("peft=lora",) if adapters else ()


def predicted(case: Case) -> Mapping[str, object]:
    """A row of the result."""
    model, plan, precision, overrides = plan_of(case)
    options = EvaluationOptions(gpu=gpu_of(case), world_size=case.count("n_gpus"))
    fields = ["sequence", "micro_batch", "global_batch", *(name for name in _DEGREES if getattr(plan, name) > 1)]
    begin = time.monotonic()
    result = capture_plan_and_evaluate(model, plan, fields, options, precision=precision, overrides=overrides).result
    if result.exit == "out_of_memory":
        raise CannotBuildError("does not fit with what Megatron-Bridge's recipe sets")
    times = step_times(case, result)
    return {
        "id": case.text("id"),
        "run": f"{case.text('model')}, {case.text('n_gpus')} {case.text('gpu')}, {precision}",
        "plan": " ".join(f"{axis}{case.count(axis, 1)}" for axis in _AXES if case.count(axis, 1) > 1),
        **times,
        "error": error_of(times),
        "memory_gib": result.memory.peak_reserved_bytes / 2**30 if result.memory else None,
        "took_s": time.monotonic() - begin,
    }


_AXES = ("tp", "pp", "vp", "cp", "ep")
_DEGREES = ("tensor", "pipeline", "virtual", "context", "expert")


def page(rows: Mapping[str, Mapping[str, object]]) -> str:
    """The result as a page."""
    errors = [abs(float(str(row["error"]))) for row in rows.values()]
    inside = sum(bool(row["inside"]) for row in rows.values())
    lines = [
        "# Plans of published runs, captured from Megatron-Bridge",
        "",
        f"{datetime.date.today()}, by `python validation/framework_plans.py`. Only the plan is taken from each row: "
        "what it does not say (recomputation, dispatcher, CUDA graphs) is as in Megatron-Bridge's own recipe for the "
        "model, the GPU and the precision, in whatever release the row is of.",
        "",
        f"{len(rows)} rows: median error {statistics.median(errors):.1%}, largest {max(errors):.1%}, "
        f"{inside} inside the 80 % interval. The time is that of the command, seconds where the capture was kept.",
        "",
        "| row | run | plan | published | predicted | error | inside | time |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows.values():
        lines.append(
            f"| {row['id']} | {row['run']} | {row['plan']} | {row['published_s']:.4g} s | {row['predicted_s']:.4g} s "
            f"| {row['error']:+.1%} | {'yes' if row['inside'] else 'no'} | {row['took_s']:.0f} s |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    with sentences():
        compare(__doc__, RESULT, predicted, page, "Megatron-Bridge")
