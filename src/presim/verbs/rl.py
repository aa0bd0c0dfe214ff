"""Predict a job of reinforcement learning: rollouts and training in one simulation (`presim rl`)."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from presim.errors import InputError
from presim.evaluation.options import ClusterOptions, EvaluationOptions
from presim.verbs.target import chosen_cluster

if TYPE_CHECKING:
    from presim.composition.plan import Plan
    from presim.evaluation.evaluate_traces import Evaluation
    from presim.hardware import Cluster
    from presim.post_training.captured_step import CapturedStep
    from presim.post_training.rl_answer import RlAnswer
    from presim.post_training.rl_job import RlJob
    from presim.post_training.rl_request import RlRequest
    from presim.post_training.training import EvaluatePlan

# Fields of the plan of an update that a framework is asked for; the others are its own defaults.
_NAMED = ("sequence", "micro_batch", "global_batch", "tensor", "sequence_parallel", "context", "expert", "pipeline")
_NAMED_OF_HF = ("sequence", "micro_batch", "global_batch", "data_style")


def predict_rl(
    request: RlRequest,
    options: ClusterOptions,
    *,
    price_per_gpu_hour: float | None = None,
    notes: Sequence[str] = (),
    searches: bool = False,
    vary: Mapping[str, Sequence[str | int | float]] | None = None,
    study: str | os.PathLike[str] | None = None,
    writes: str | None = None,
    train: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> RlAnswer:
    """Predict the steps of a job, or with ``searches`` those of its fastest placement.

    ``notes``: sentences to include in the answer. ``writes``: the framework in whose keys the answer has the job, too.
    ``vary``: values of a search by knob, such as ``{"tp": [1, 2]}``. ``study``: a file from
    which an interrupted search goes on. ``train``: a saved capture of a training step on
    the training GPUs, for updates and log-probabilities.

    Raises:
        InputError: the request cannot be, or a role does not fit its GPUs.
    """
    from presim.post_training.build import build_job
    from presim.post_training.placement_search import search
    from presim.post_training.rl_answer import answer
    from presim.post_training.rl_loop import simulate

    if vary and not searches:
        raise InputError("--vary has values of a search; add --search")
    if study is not None and not searches:
        raise InputError("--study stores the placements of a search; add --search")
    if train is not None and (searches or request.framework is not None):
        raise InputError("--train has the step of one plan and pool; leave out --search and --framework, or --train")
    framework = framework_of(request, options, progress)
    if searches:
        _compile_scheduler(progress)
        best, request, job = search(
            request, chosen_cluster(options), price_per_gpu_hour, progress, framework, vary, study
        )
        best = msgspec.structs.replace(best, notes=[*notes, *best.notes])
        return _with_settings(best, writes, request, job)
    step = _captured_step(train, options) if train is not None else None
    built = build_job(request, chosen_cluster(options), progress, framework=framework, captured=step)
    _compile_scheduler(progress)
    progress("simulating rollouts")
    run = simulate(built.job, built.prices)
    single = answer(dataclasses.replace(built, notes=(*notes, *built.notes)), run, price_per_gpu_hour)
    return _with_settings(single, writes, request, built.job)


def _compile_scheduler(progress: Callable[[str], None]) -> None:
    """Rollouts are millions of tokens: uncompiled they take some twenty times as long as compiling the loop."""
    from presim.serving.fast.compiled_scheduler import compiled_run

    progress("compiling the scheduler's loop, or loading it")
    compiled_run()


def _captured_step(directory: str | os.PathLike[str], options: ClusterOptions) -> CapturedStep:
    """The step of a saved capture, on the GPU that the options name."""
    from presim.post_training.captured_step import captured_step
    from presim.verbs.simulate import evaluate_saved

    return captured_step(os.fspath(directory), evaluate_saved(directory, EvaluationOptions(gpu=options.gpu)))


def _with_settings(shown: RlAnswer, writes: str | None, request: RlRequest, job: RlJob) -> RlAnswer:
    from presim.post_training.recipes.write_recipe import settings_for

    if not writes:
        return shown
    written = settings_for(writes, request, job)
    unsaid = f"Keys of {writes} do not say these options of the job: {', '.join(written.unsaid)}."
    notes = [*shown.notes, unsaid] if written.unsaid else shown.notes
    return msgspec.structs.replace(shown, settings=written.lines, notes=notes)


def _trainer_of(request: RlRequest) -> tuple[str | None, tuple[str, ...]]:
    """The framework whose trainer is captured, and its fields: adapters are no composed step's."""
    if request.lora_rank is None:
        return request.framework, request.framework_args
    name = request.framework or ("megatron" if request.dp_style == "zero1" else "hf")
    rank = str(request.lora_rank)
    adapters = {
        "megatron": ("peft=lora", f"peft.dim={rank}"),
        "hf": ("--lora_r", rank, "--lora_target_modules", "all-linear"),
    }
    return name, (*adapters[name], *request.framework_args)


def _plan_of_hf(plan: Plan) -> Plan:
    """The plan in what Hugging Face's trainer has: whole sequences on a rank, and its own kernels.

    Raises:
        InputError: sequences are split over ranks.
    """
    if plan.context > 1:
        raise InputError(
            f"Hugging Face's trainer has whole sequences on a rank, and a micro-batch of {plan.sequence:,} tokens does "
            f"not fit without context parallelism of {plan.context}; use fewer --micro-tokens, or --dp-style zero1"
        )
    return msgspec.structs.replace(plan, passes=(), attention="auto", context_style="all-gather")


def framework_of(
    request: RlRequest, options: ClusterOptions, progress: Callable[[str], None] = lambda text: None
) -> EvaluatePlan | None:
    """What evaluates a plan by capturing the trainer of the request's framework; None: it names none."""
    name, overrides = _trainer_of(request)
    if name is None:
        return None
    from presim.verbs.compose_framework import capture_plan_and_evaluate

    cluster_fields = {field.name: getattr(options, field.name) for field in dataclasses.fields(ClusterOptions)}

    def evaluate_plan(plan: Plan, pool: Cluster) -> Evaluation:
        if name == "hf":
            plan = _plan_of_hf(plan)
        fields = {**cluster_fields, "nodes": pool.nodes, "gpus_per_node": pool.gpus_per_node, "world_size": None}
        named = set(_NAMED if name == "megatron" else _NAMED_OF_HF)
        named |= {"recompute"} if plan.recompute != "none" else set()
        return capture_plan_and_evaluate(
            request.model,
            plan,
            named,
            EvaluationOptions(**fields),
            framework=name,
            overrides=overrides,
            progress=progress,
        )

    return evaluate_plan
