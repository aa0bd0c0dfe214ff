"""Compares plans composed from few layers and micro-batches with captures of the whole plans.

    python validation/block_plans.py [--only WORD] [--missing]

Both are captured from the same framework, and kept in the user's cache. Each capture measures its host anew, and on a
busy machine the more so; so steps are compared with the host times of the whole capture in both. Writes
`results/block-plans.md`; the file of the same name with `.json` keeps the rows, so that a part of the plans can be
compared again.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import datetime
import json
import os
import statistics
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from presim.cli.script import sentences
from presim.composition.graph.take import config_file
from presim.composition.plan import Plan
from presim.errors import InputError, PresimError
from presim.evaluation.evaluate_traces import evaluate
from presim.evaluation.options import EvaluationOptions
from presim.result import Result
from presim.trace.job import Job
from presim.verbs.compose_framework import capture_plan_and_evaluate
from presim.verbs.target import chosen_cluster, engine_options
from presim_study.shared_host import HostTimes

RESULT = Path(__file__).parent / "results" / "block-plans.md"
ROWS = RESULT.with_suffix(".json")
LAYERS, MICRO_BATCHES = 24, 8  # of the whole plans
COLUMNS = ("step time", "peak allocated", "peak reserved")


@dataclasses.dataclass(frozen=True)
class PlanCase:
    """A plan of a model with 24 layers, and 8 micro-batches unless it says otherwise."""

    name: str
    framework: str
    model: str
    gpu: str
    world_size: int
    fields: Mapping[str, object] = dataclasses.field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    precision: str = "bf16"
    layers: int = LAYERS


_FULL = {"recompute": "full"}
_ZERO1 = {"data_style": "zero1"}
_PIPELINE = {"pipeline": 2, "micro_batches": 16}
CASES = (
    PlanCase("FSDP2", "hf", "llama3-8b", "h100-sxm", 64),
    PlanCase("FSDP2 on 1,024", "hf", "llama3-8b", "h100-sxm", 1024),
    PlanCase("FSDP2, recomputed", "hf", "llama3-8b", "a100-80gb-sxm", 128, _FULL),
    PlanCase("FSDP2 without resharding", "hf", "llama3-3b", "h100-sxm", 32, {"reshard": False}),
    PlanCase("HSDP", "hf", "llama3-8b", "b200", 64, {"data_style": "hsdp", "shard": 8}),
    PlanCase("FSDP2 of Qwen3", "hf", "qwen3-8b", "b200", 64, _FULL),
    PlanCase("FSDP2 of Mistral", "hf", "mistral-7b", "a100-80gb-sxm", 64, {"micro_batch": 2, **_FULL}),
    PlanCase("FSDP2 in FP8", "hf", "llama3-8b", "h100-sxm", 64, {"passes": ("fp8-row",)}),
    PlanCase("ZeRO-3", "deepspeed", "llama3-8b", "h100-sxm", 64),
    PlanCase("ZeRO-3, recomputed", "deepspeed", "llama2-7b", "a100-80gb-sxm", 128, _FULL),
    PlanCase("ZeRO-3 of Qwen3", "deepspeed", "qwen3-8b", "b200", 256),
    PlanCase("ZeRO-2", "deepspeed", "llama3-3b", "h100-sxm", 64, _ZERO1, ("zero_optimization.stage=2",)),
    PlanCase("ZeRO-1", "deepspeed", "llama3-3b", "a100-80gb-sxm", 32, _ZERO1),
    PlanCase("torchtitan FSDP2", "torchtitan", "llama3-8b", "h100-sxm", 64, _FULL),
    PlanCase("torchtitan on 1,024", "torchtitan", "llama3-8b", "b200", 1024),
    PlanCase("torchtitan TP", "torchtitan", "llama3-8b", "h100-sxm", 128, {"tensor": 8, "sequence_parallel": True}),
    PlanCase("torchtitan CP", "torchtitan", "llama3-8b", "h100-sxm", 64, {"context": 2, "sequence": 8192, **_FULL}),
    PlanCase("torchtitan HSDP", "torchtitan", "llama3-8b", "a100-80gb-sxm", 64, {"data_style": "hsdp", "shard": 8}),
    PlanCase("torchtitan PP", "torchtitan", "llama3-8b", "h100-sxm", 64, _PIPELINE),

    PlanCase("Megatron DP", "megatron", "llama3-8b", "h100-sxm", 64, {"data_style": "zero1"}),
    PlanCase("Megatron TP, PP", "megatron", "llama3-8b", "h100-sxm", 64, {"tensor": 2, **_PIPELINE}),
    PlanCase("Megatron interleaved", "megatron", "llama3-8b", "b200", 64, {"virtual": 2, **_PIPELINE}),

    PlanCase("FSDP2 of 1B", "hf", "llama3-1b", "h100-sxm", 8),
    PlanCase("FSDP2 of 1B on A100", "hf", "llama3-1b", "a100-80gb-sxm", 16, {"sequence": 8192, **_FULL}),
    PlanCase("FSDP2 of 1B on B200", "hf", "llama3-1b", "b200", 512, {"micro_batch": 4}),
    PlanCase("HSDP of 1B, recomputed", "hf", "llama3-1b", "h100-sxm", 256, {"data_style": "hsdp", "shard": 8, **_FULL}),
    PlanCase("HSDP of 1B without resharding", "hf", "llama3-1b", "b200", 32, {
        "data_style": "hsdp", "shard": 4, "reshard": False}),
    PlanCase("FSDP2 of 1B, short", "hf", "llama3-1b", "h100-sxm", 64, {"sequence": 1024, "micro_batch": 2}),
    PlanCase("FSDP2 of Qwen3 0.6B", "hf", "qwen3-0.6b", "a100-80gb-sxm", 8),
    PlanCase("FSDP2 of Qwen3 0.6B on B200", "hf", "qwen3-0.6b", "b200", 64, {"micro_batch": 2, "reshard": False}),
    PlanCase("FSDP2 of 1B with LoRA", "hf", "llama3-1b", "h100-sxm", 8, {**_FULL}, (
        "--lora_r", "16", "--lora_target_modules", "all-linear")),
    PlanCase("FSDP2 of 3B", "hf", "llama3-3b", "b200", 128, {"micro_batch": 2, **_FULL}),
    PlanCase("FSDP2 of Llama 2", "hf", "llama2-7b", "a100-80gb-sxm", 64),
    PlanCase("FSDP2 of 1B in FP8", "hf", "llama3-1b", "b200", 16, {"passes": ("fp8-row",)}),
    PlanCase("HSDP of 3B", "hf", "llama3-3b", "a100-80gb-sxm", 64, {"data_style": "hsdp", "shard": 8}),
    PlanCase("FSDP2 of Mistral on H100", "hf", "mistral-7b", "h100-sxm", 256, {"sequence": 8192, **_FULL}),
    PlanCase("ZeRO-3 of Llama 2", "deepspeed", "llama2-7b", "b200", 64),
    PlanCase("torchtitan CP of 3B on A100", "torchtitan", "llama3-3b", "a100-80gb-sxm", 16, {
        "context": 2, "sequence": 8192}),
    PlanCase("ZeRO-3 of 3B", "deepspeed", "llama3-3b", "h100-sxm", 8),
    PlanCase("ZeRO-3 of 3B, recomputed", "deepspeed", "llama3-3b", "a100-80gb-sxm", 64, {"micro_batch": 2, **_FULL}),
    PlanCase("ZeRO-2 of 3B", "deepspeed", "llama3-3b", "b200", 32, _ZERO1, ("zero_optimization.stage=2",)),
    PlanCase("ZeRO-2 of 3B, recomputed", "deepspeed", "llama3-3b", "h100-sxm", 128, {**_ZERO1, **_FULL}, (
        "zero_optimization.stage=2",)),
    PlanCase("ZeRO-1 of 3B", "deepspeed", "llama3-3b", "h100-sxm", 64, _ZERO1),
    PlanCase("ZeRO-1 of 3B, short", "deepspeed", "llama3-3b", "b200", 8, {
        "sequence": 1024, "micro_batch": 4, **_ZERO1}),
    PlanCase("ZeRO-1 of Qwen3 0.6B", "deepspeed", "qwen3-0.6b", "a100-80gb-sxm", 16, _ZERO1),
    PlanCase("ZeRO-2 of 1B with LoRA", "deepspeed", "llama3-1b", "h100-sxm", 8, {**_ZERO1, **_FULL}, (
        "zero_optimization.stage=2", "--lora_r", "16", "--lora_target_modules", "all-linear")),
    PlanCase("ZeRO-3 of 1B with LoRA", "deepspeed", "llama3-1b", "a100-80gb-sxm", 16, {**_FULL}, (
        "--lora_r", "16", "--lora_target_modules", "all-linear")),
    PlanCase("torchtitan FSDP2 of 3B", "torchtitan", "llama3-3b", "h100-sxm", 8),
    PlanCase("torchtitan FSDP2 of 3B, recomputed", "torchtitan", "llama3-3b", "a100-80gb-sxm", 32, {
        "micro_batch": 2, **_FULL}),
    PlanCase("torchtitan FSDP2 of 3B on B200", "torchtitan", "llama3-3b", "b200", 256, {"sequence": 8192}),
    PlanCase("torchtitan TP of 3B", "torchtitan", "llama3-3b", "h100-sxm", 16, {
        "tensor": 2, "sequence_parallel": True}),
    PlanCase("torchtitan TP of 3B on B200", "torchtitan", "llama3-3b", "b200", 32, {
        "tensor": 4, "sequence_parallel": True, "micro_batch": 2}),
    PlanCase("torchtitan TP of 3B, no SP", "torchtitan", "llama3-3b", "a100-80gb-sxm", 16, {"tensor": 4}),
    PlanCase("torchtitan CP of 3B", "torchtitan", "llama3-3b", "h100-sxm", 32, {"context": 4, "sequence": 16384}),
    PlanCase("torchtitan TP, CP of 3B", "torchtitan", "llama3-3b", "b200", 64, {
        "tensor": 2, "sequence_parallel": True, "context": 2, "sequence": 8192}),
    PlanCase("torchtitan HSDP of 3B", "torchtitan", "llama3-3b", "h100-sxm", 64, {"data_style": "hsdp", "shard": 8}),
    PlanCase("torchtitan without resharding of 3B", "torchtitan", "llama3-3b", "b200", 16, {"reshard": False}),
    PlanCase("torchtitan compiled 3B", "torchtitan", "llama3-3b", "h100-sxm", 64, {}, ("--compile.enable",)),
    PlanCase("torchtitan PP of Llama 2", "torchtitan", "llama2-7b", "a100-80gb-sxm", 16, _PIPELINE),
    PlanCase("torchtitan PP of Llama 2, four stages", "torchtitan", "llama2-7b", "b200", 32, {
        "pipeline": 4, "micro_batches": 32}),
    PlanCase("torchtitan TP, PP of Llama 2", "torchtitan", "llama2-7b", "h100-sxm", 32, {
        "tensor": 2, "sequence_parallel": True, **_PIPELINE}),
    PlanCase("torchtitan interleaved Llama 2", "torchtitan", "llama2-7b", "h100-sxm", 16, {"virtual": 2, **_PIPELINE}),
    PlanCase("Megatron DP of 3B", "megatron", "llama3-3b", "h100-sxm", 16, {**_ZERO1, "micro_batches": 12}),
    PlanCase("Megatron DDP of 3B", "megatron", "llama3-3b", "a100-80gb-sxm", 8, {
        "data_style": "ddp", "micro_batches": 12}),
    PlanCase("Megatron TP of 3B", "megatron", "llama3-3b", "b200", 32, {"tensor": 4, "micro_batches": 12}),
    PlanCase("Megatron TP, PP of 3B", "megatron", "llama3-3b", "a100-80gb-sxm", 32, {"tensor": 2, **_PIPELINE}),
    PlanCase("Megatron CP of 3B", "megatron", "llama3-3b", "h100-sxm", 32, {
        "context": 2, "sequence": 8192, "micro_batches": 12}),
    PlanCase("Megatron PP of 3B, four stages", "megatron", "llama3-3b", "h100-sxm", 32, {
        "pipeline": 4, "micro_batches": 32}),
    PlanCase("Megatron interleaved 3B", "megatron", "llama3-3b", "h100-sxm", 32, {"virtual": 2, **_PIPELINE}),
    PlanCase("Megatron TP, CP, PP of 3B", "megatron", "llama3-3b", "b200", 64, {
        "tensor": 2, "context": 2, "sequence": 8192, **_PIPELINE}),
    PlanCase("Megatron recomputed 3B", "megatron", "llama3-3b", "h100-sxm", 32, {"tensor": 2, **_PIPELINE, **_FULL}),
    PlanCase("Megatron DP of 96 layers", "megatron", "llama3-3b", "b200", 64, {**_ZERO1, "micro_batches": 12},
        layers=96),
    PlanCase("Megatron TP of 96 layers", "megatron", "llama3-70b", "b200", 64, {"tensor": 8, "micro_batches": 12},
        layers=96),
    PlanCase("Megatron in FP8 of 96 layers", "megatron", "llama3-8b", "b200", 64, {"micro_batches": 12},
        precision="fp8-current", layers=96),
    PlanCase("Megatron PP of 1B, six stages", "megatron", "llama3-1b", "h100-sxm", 48, {
        "pipeline": 6, "micro_batches": 16}),
    PlanCase("Megatron PP of 1B, eight stages", "megatron", "llama3-1b", "b200", 64, {
        "pipeline": 8, "micro_batches": 24}),
    PlanCase("Megatron PP of 1B, twelve stages", "megatron", "llama3-1b", "a100-80gb-sxm", 96, {
        "pipeline": 12, "micro_batches": 32}),
    PlanCase("Megatron TP, PP of 3B, six stages", "megatron", "llama3-3b", "h100-sxm", 96, {
        "tensor": 2, "pipeline": 6, "micro_batches": 24}),
    PlanCase("Megatron TP, PP of 8B, eight stages", "megatron", "llama3-8b", "h100-sxm", 128, {
        "tensor": 4, "pipeline": 8, "micro_batches": 24}),
    PlanCase("Megatron CP, PP of 3B, six stages", "megatron", "llama3-3b", "b200", 96, {
        "context": 2, "sequence": 8192, "pipeline": 6, "micro_batches": 16}),
    PlanCase("Megatron recomputed 8B, eight stages", "megatron", "llama3-8b", "a100-80gb-sxm", 64, {
        "pipeline": 8, "micro_batches": 24, **_FULL}),
    PlanCase("Megatron DDP, PP of 1B, six stages", "megatron", "llama3-1b", "h100-sxm", 48, {
        "data_style": "ddp", "pipeline": 6, "micro_batches": 16}),
    PlanCase("Megatron PP of Qwen3 8B, six stages", "megatron", "qwen3-8b", "b200", 48, {
        "pipeline": 6, "micro_batches": 16}),
    PlanCase("Megatron EP, PP of Qwen3 30B, six stages", "megatron", "qwen3-30b-a3b", "h100-sxm", 96, {
        "expert": 8, "pipeline": 6, "micro_batches": 16}),
    PlanCase("Megatron in FP8, PP of 8B, eight stages", "megatron", "llama3-8b", "h100-sxm", 64, {
        "pipeline": 8, "micro_batches": 24}, precision="fp8-delayed"),
    PlanCase("Megatron EP of Qwen3 30B", "megatron", "qwen3-30b-a3b", "h100-sxm", 32, {
        "expert": 8, "micro_batches": 12}),
    PlanCase("Megatron EP, PP of Qwen3 30B", "megatron", "qwen3-30b-a3b", "b200", 32, {"expert": 4, **_PIPELINE}),
)  # fmt: skip


def evaluated(case: PlanCase, config: Path, *, extends: bool, save: Path | None = None) -> Result:
    """The plan's result, composed or captured in full. ``save``: where its traces go."""
    fields = dict(case.fields)
    micro_batches = int(str(fields.pop("micro_batches", MICRO_BATCHES)))
    fields.setdefault("sequence", 4096)
    plan = Plan(**fields)  # type: ignore[arg-type]  # of mixed types
    samples = plan.micro_batch * plan.data(case.world_size) * micro_batches
    plan = Plan(**fields, global_batch=samples)  # type: ignore[arg-type]
    options = EvaluationOptions(gpu=case.gpu, world_size=case.world_size)
    return capture_plan_and_evaluate(
        str(config),
        plan,
        [*fields, "global_batch"],
        options,
        framework=case.framework,
        precision=case.precision,
        overrides=case.arguments,
        extends=extends,
        save=save,
    ).result


def step_time_s(case: PlanCase, job: Job, *, host_time: bool = True) -> float:
    """The step time of a job on the case's cluster. ``host_time``: False: the host takes no time."""
    options = EvaluationOptions(gpu=case.gpu, world_size=case.world_size, host_time=host_time)
    return evaluate(job, chosen_cluster(options), engine_options(options)).result.step_time_s or 0.0


def compared(case: PlanCase, folder: Path) -> dict[str, object]:
    """A row of the result."""
    config = folder / "config.json"
    model = json.loads((config_file(case.model) or Path()).read_bytes())
    model["num_hidden_layers"] = case.layers
    config.write_text(json.dumps({name: value for name, value in model.items() if name != "presim_source"}))
    folders = (folder / "composed", folder / "captured")
    composed = evaluated(case, config, extends=True, save=folders[0])
    captured = evaluated(case, config, extends=False, save=folders[1])
    if captured.exit == "out_of_memory":
        raise InputError(f"its whole capture runs out of memory on {case.gpu}, so there is no step to compare")
    jobs = [Job.load(saved) for saved in folders]
    device_times_s = [step_time_s(case, job, host_time=False) for job in jobs]
    host_times = HostTimes(jobs[1])
    shared_times_s = [step_time_s(case, host_times.applied(job)) for job in jobs]
    pairs = (
        (composed.step_time_s or 0.0, captured.step_time_s or 0.0),
        (composed.memory.peak_allocated_bytes, captured.memory.peak_allocated_bytes),
        (composed.memory.peak_reserved_bytes, captured.memory.peak_reserved_bytes),
    )
    return {
        "framework": case.framework,
        "run": f"{case.model}, {_depth(case)}{case.world_size:,} {case.gpu}",
        "step_s": pairs[0],
        "errors": [value / reference - 1 if reference else 0.0 for value, reference in pairs],
        "device_step_s": device_times_s,
        "shared_host_step_s": shared_times_s,
        "is_extended": any("layers: those added" in note for note in composed.notes),
        "has_few_stages": any("pipeline stages with the layers" in note for note in composed.notes),
    }


def _depth(case: PlanCase) -> str:
    return "" if case.layers == LAYERS else f"{case.layers} layers, "


def page(rows: Mapping[str, Mapping[str, object]]) -> str:
    """The result as a page."""
    columns = [
        _step_errors(rows, "shared_host_step_s"),
        *([_floats(row["errors"])[i] for row in rows.values()] for i in (1, 2)),
    ]
    figures = "; ".join(f"{name} {_figures(column)}" for name, column in zip(COLUMNS, columns))
    lines = [
        "# Plans from few layers and micro-batches, and whole captures",
        "",
        f"{datetime.date.today()}, by `python validation/block_plans.py` on {os.cpu_count()} cores. Models have "
        f"{LAYERS} layers unless the run says more, and steps {MICRO_BATCHES} micro-batches, 16 in pipelines. Composed "
        "plans are captured with 5 and 7 layers and with as few micro-batches as repeat; those of pipelines, and of "
        "Megatron with fewer than 96 layers, with all layers; pipelines with more than four stages with four of them.",
        "",
        "Each capture measures its host anew, on a machine that others use. So step times are compared with the host "
        "times of the whole capture in both; the columns beside it are without host time, and with each one's own.",
        "",
        f"{len(rows)} plans. {figures}. Step time without host time {_figures(_step_errors(rows, 'device_step_s'))}; "
        f"with each one's own {_figures(_step_errors(rows, 'step_s'))}.",
        "",
        "| plan | framework | run | step | step time | without host | own hosts | allocated | reserved | extended |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        own, allocated, reserved = _floats(row["errors"])
        _, seconds = _floats(row["step_s"])
        errors = (_error(row, "shared_host_step_s"), _error(row, "device_step_s"), own, allocated, reserved)
        extended = "layers" if row["is_extended"] else "stages" if row.get("has_few_stages") else "no"
        shown = " | ".join(map(_shown, errors))
        lines.append(f"| {name} | {row['framework']} | {row['run']} | {seconds:.4g} s | {shown} | {extended} |")
    return "\n".join(lines) + "\n"


def _figures(errors: list[float]) -> str:
    sizes = [abs(error) for error in errors]
    if not sizes:
        return "of no plan"
    return (
        f"of {len(sizes)}: {statistics.median(sizes):.2%} in the median, {_ninetieth(sizes):.2%} at p90, "
        f"{max(sizes):.2%} at most"
    )


def _step_errors(rows: Mapping[str, Mapping[str, object]], name: str) -> list[float]:
    return [error for row in rows.values() if (error := _error(row, name)) is not None]


def _error(row: Mapping[str, object], name: str) -> float | None:
    """Error of a step time; None in rows of earlier versions."""
    if name not in row:
        return None
    composed_s, captured_s = _floats(row[name])
    return composed_s / captured_s - 1


def _shown(error: float | None) -> str:
    return "" if error is None else f"{error:+.2%}"


def _floats(values: object) -> list[float]:
    assert isinstance(values, list | tuple), "written by `compared`"
    return [float(value) for value in values]


def _ninetieth(values: list[float]) -> float:
    return sorted(values)[int(0.9 * (len(values) - 1) + 0.5)]


def _rarest_first(cases: Sequence[PlanCase], rows: Collection[str]) -> list[PlanCase]:
    """Cases without a row first, by turns of frameworks, those with few rows first; of each, few stages first."""
    counts = collections.Counter(case.framework for case in CASES if case.name in rows)
    ordered = []
    for case in sorted(
        cases, key=lambda case: (case.name in rows, int(str(case.fields.get("pipeline", 1))), case.layers)
    ):
        counts[case.framework] += 1
        ordered.append(((case.name in rows), counts[case.framework], case))
    return [case for *_, case in sorted(ordered, key=lambda entry: entry[:2])]


def main() -> None:
    """Compare, and write the page after each plan."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", default="", metavar="WORD", help="the plan of that name, or plans whose name or framework has it"
    )
    parser.add_argument(
        "--missing", action="store_true", help="only plans without a row, and those of earlier versions after them"
    )
    options = parser.parse_args()
    rows = json.loads(ROWS.read_text()) if ROWS.exists() else {}
    only = options.only
    cases = [case for case in CASES if only == case.name]
    cases = cases or [case for case in CASES if only in case.name or only in case.framework]
    if not cases:
        raise InputError(f"no plan contains {only!r}; plans are {', '.join(case.name for case in CASES)}")
    if options.missing:
        cases = _rarest_first([case for case in cases if "shared_host_step_s" not in rows.get(case.name, {})], rows)
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            try:
                rows[case.name] = compared(case, Path(folder))
            except PresimError as error:
                print(f"{case.name}: {error}", flush=True)
                continue
            print(case.name, rows[case.name], flush=True)
            ordered = {name: rows[name] for name in (case.name for case in CASES) if name in rows}
            ROWS.write_text(json.dumps(ordered, indent=1) + "\n")
            RESULT.write_text(page(ordered))


if __name__ == "__main__":
    with sentences():
        main()
