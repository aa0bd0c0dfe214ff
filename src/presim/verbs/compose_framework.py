"""Evaluate a plan by capturing a framework's own program (`presim compose --framework`)."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import msgspec

from presim.composition.replan.micro_batches import with_micro_batches
from presim.evaluation.evaluate_traces import Evaluation, evaluate
from presim.evaluation.options import ClusterOptions, EvaluationOptions
from presim.result import MemoryTimeline
from presim.system.interrupts import noted, simulating
from presim.trace.fp8_attention import with_fp8_attention
from presim.trace.job import Job
from presim.verbs.framework_captures import capture_launched, capture_megatron, with_fewer_stages
from presim.verbs.target import chosen_cluster, engine_options, what_if_changes

if TYPE_CHECKING:
    from pathlib import Path

    from presim.analysis.repeated_batches import Repeats
    from presim.composition.frameworks.launched import LaunchedRun
    from presim.composition.frameworks.megatron import FrameworkRun
    from presim.composition.plan import Plan
    from presim.hardware.cluster import Cluster
    from presim.trace.schema import Trace
    from presim.verbs.framework_captures import CapturedPlan
    from presim.verbs.run import Progress


def capture_plan_and_evaluate(
    model: str,
    plan: Plan,
    named_fields: Collection[str],
    options: EvaluationOptions,
    *,
    framework: str = "megatron",
    precision: str = "bf16",
    overrides: Sequence[str] = (),
    extends: bool = True,
    simulates_all: bool = True,
    save: str | os.PathLike[str] | None = None,
    notes: Sequence[str] = (),
    progress: Progress = lambda text: None,
) -> Evaluation:
    """Capture a framework with a few micro-batches of a plan, extend them to all, and evaluate the job.

    ``named_fields``, ``overrides``: see `presim.composition.frameworks.megatron.plan_run` and
    `presim.composition.frameworks.launched.launched_run`. ``extends``: False: capture all layers and micro-batches.
    ``simulates_all``: False: simulate a few micro-batches where further ones take as long. The result is that of all,
    without memory over time; traces and timelines lack the others. ``notes``: sentences for the result,
    before those of the capture.

    Raises:
        InputError: the framework is not installed, has no such model, or does not take the plan.
        CaptureError: the program cannot be run here.
    """
    from presim.analysis.repeated_batches import NotRepeatedError
    from presim.trace import job_store

    if save is not None:
        job_store.check_writable(save)
    target = chosen_cluster(options)
    job = _FrameworkJob(framework, model, plan, tuple(named_fields), target, precision, tuple(overrides), extends)
    is_short = extends and not simulates_all and save is None and not options.stragglers
    if is_short and (fewer := job.fewer_micro_batches()) is not None:
        try:
            return _evaluated(job, fewer, options, notes, None, progress)
        except NotRepeatedError:
            progress(f"{fewer} micro-batches do not show what further ones take")
    return _evaluated(job, None, options, notes, save, progress)


@dataclasses.dataclass(frozen=True)
class _FrameworkJob:
    """A plan of a framework's own program."""

    framework: str
    model: str
    plan: Plan
    named_fields: tuple[str, ...]
    target: Cluster
    precision: str
    overrides: tuple[str, ...]
    extends: bool

    def capture(self, micro_batches: int | None, progress: Progress) -> tuple[FrameworkRun | LaunchedRun, CapturedPlan]:
        """The run, and its capture with as many stages and layers as the plan; micro-batches may still lack."""
        model, plan, named_fields, target = self.model, self.plan, self.named_fields, self.target
        if self.framework != "megatron":
            run_of = _launched_run(self.framework, model, plan, named_fields, target, self.precision, self.overrides)
            return capture_launched(run_of, plan, target, progress, extends=self.extends)
        run_with = _megatron_run(model, plan, named_fields, target, self.precision, all_micro_batches=not self.extends)
        short_run = functools.partial(_short_run, model, plan, target, extends=self.extends)
        few_layers = functools.partial(_few_layers, model, plan, extends=self.extends)
        return capture_megatron(run_with, short_run, few_layers, self.overrides, plan, target, micro_batches, progress)

    def fewer_micro_batches(self) -> int | None:
        """The number of micro-batches that may answer for all of a step; None: all are needed."""
        from presim.composition.frameworks.megatron import fewest_repeating
        from presim.evaluation.repeated_rounds import fewer_micro_batches

        world_size = self.target.world_size
        if not self.plan.data(world_size):  # the framework's run says what does not divide
            return None
        return fewer_micro_batches(self.plan.micro_batches(world_size), self.plan.pipeline, fewest_repeating(self.plan))


def _evaluated(
    job: _FrameworkJob,
    micro_batches: int | None,
    options: EvaluationOptions,
    notes: Sequence[str],
    save: str | os.PathLike[str] | None,
    progress: Progress,
) -> Evaluation:
    """The evaluation with so many micro-batches simulated; None: all.

    Raises:
        NotRepeatedError: it does not show what the plan's further ones take.
    """
    with noted("captures that are finished stay in the cache, and the same command goes on from them"):
        run, captured = job.capture(micro_batches, progress)
    manifest = captured.job.manifest
    traces = [_titled(trace, job.model, run) for trace in captured.traces]
    notes = [*notes, *run.notes, *captured.notes, *manifest.notes]
    number = run.step_micro_batches if micro_batches is None else max(micro_batches, run.captured_micro_batches)
    number = min(number, run.step_micro_batches)
    if captured.is_whole and not captured.has_all_micro_batches and number > run.captured_micro_batches:
        traces, sentences = with_micro_batches(traces, number)
        notes = [*sentences, *notes]
    if getattr(run, "attends_in_fp8", False):
        traces = [with_fp8_attention(trace) for trace in traces]
    repeats = None
    if captured.is_whole and number < run.step_micro_batches:
        repeats, sentence = _repeats(job.plan, traces, number, run.step_micro_batches)
        notes = [sentence, *notes]
    planned = Job([_with_batch(trace, job.plan) for trace in traces], captured.stands_for, manifest.coverage, notes)
    if save is not None:
        planned.save(save)
    progress("simulating")
    engine = engine_options(
        dataclasses.replace(options, host_time=options.host_time and not getattr(run, "is_whole_graph", False))
    )
    prices, changes = options.price_folders, what_if_changes(options)
    with simulating(save):
        evaluation = evaluate(planned, job.target, engine, prices=prices, changes=changes, repeats=repeats)
    return evaluation if repeats is None else _without_memory_over_time(evaluation)


def _repeats(plan: Plan, traces: Sequence[Trace], number: int, micro_batches: int) -> tuple[Repeats, str]:
    """What a step of few micro-batches lacks, and a sentence for the reader."""
    from presim.analysis.repeated_batches import NotRepeatedError
    from presim.evaluation.repeated_rounds import repeats_of

    repeats = repeats_of(traces, number, micro_batches, plan.pipeline if plan.virtual > 1 else 1)
    if repeats is None:
        raise NotRepeatedError
    sentence = (
        f"Simulated {number} of {micro_batches} micro-batches: two rounds of them do the same and take equally long "
        "on each rank, so the slowest rank's is repeated for the others."
    )
    return repeats, sentence


def _without_memory_over_time(evaluation: Evaluation) -> Evaluation:
    """The evaluation without what a step of few micro-batches does not show."""
    memory = msgspec.structs.replace(evaluation.result.memory, timeline=MemoryTimeline([], [], []))
    return dataclasses.replace(evaluation, result=msgspec.structs.replace(evaluation.result, memory=memory))


def blocks_of(
    model: str,
    plan: Plan,
    named_fields: Collection[str],
    options: ClusterOptions,
    *,
    framework: str,
    precision: str = "bf16",
    overrides: Sequence[str] = (),
) -> tuple[Path, ...]:
    """Folders of the captures that answer for a plan, whether or not they are there; plans may share them.

    Raises:
        InputError: the framework is not installed, or cannot express the plan.
    """
    from presim.composition.frameworks.kept_captures import folder_of
    from presim.composition.frameworks.launched import sizes_to_capture

    target = chosen_cluster(options)
    if framework == "megatron":
        run_of_plan = _megatron_run(model, plan, named_fields, target, precision)(overrides)
        if sizes_of_run := _few_layers(model, plan, run_of_plan):
            return tuple(folder_of(size, target) for size in sizes_of_run)
        short = _short_run(model, plan, target, run_of_plan)
        short_target = None if short is None else with_fewer_stages(target, plan.pipeline, short.captured_stages)
        if short is None or short_target is None:
            return (folder_of(run_of_plan, target),)
        return (folder_of(short, short_target),)
    run_of = _launched_run(framework, model, plan, named_fields, target, precision, overrides)
    run = run_of()
    sizes = sizes_to_capture(run, plan)
    return tuple(folder_of(size, target) for size in ([run_of(layers=layers) for layers in sizes] or [run]))


def is_captured(block: Path) -> bool:
    """Whether the capture is kept in the user's cache."""
    from presim.trace import job_store

    return (block / job_store.JOB_FILE).exists()


def _megatron_run(
    model: str,
    plan: Plan,
    named_fields: Collection[str],
    target: Cluster,
    precision: str,
    *,
    all_micro_batches: bool = False,
) -> Callable[[Sequence[str]], FrameworkRun]:
    """What gives the run of Megatron with fields of Bridge's configuration."""
    from presim.composition.frameworks.megatron import plan_run

    sizes = (target.world_size, precision)
    return functools.partial(
        plan_run, model, plan, named_fields, *sizes, gpu=target.gpu.id, all_micro_batches=all_micro_batches
    )


def _short_run(
    model: str, plan: Plan, target: Cluster, run: FrameworkRun, *, extends: bool = True
) -> FrameworkRun | None:
    """The run of few stages of a pipeline that say what all do; None: all are needed, or ``extends`` is False."""
    from presim.composition.frameworks.fewer_stages import run_of_few_stages

    return run_of_few_stages(run, model, plan, target.world_size) if extends else None


def _few_layers(model: str, plan: Plan, run: FrameworkRun, *, extends: bool = True) -> tuple[FrameworkRun, ...]:
    """The runs of two numbers of layers that say what all do; none: all are needed, or ``extends`` is False."""
    from presim.composition.frameworks.fewer_layers import runs_of_few_layers

    return runs_of_few_layers(run, model, plan) if extends else ()


def _launched_run(
    framework: str,
    model: str,
    plan: Plan,
    named_fields: Collection[str],
    target: Cluster,
    precision: str,
    overrides: Sequence[str],
) -> Callable[..., LaunchedRun]:
    """What gives the run of another framework's launch files, with some of its layers."""
    from presim.composition.frameworks.launched import launched_run

    return functools.partial(launched_run, framework, model, plan, named_fields, target, precision, overrides)


def _titled(trace: Trace, model: str, run: FrameworkRun | LaunchedRun) -> Trace:
    """The trace under the name of what it shows, not of the program that was captured."""
    manifest = msgspec.structs.replace(trace.manifest, script=f"composed from {run.subject}: {model}")
    return dataclasses.replace(trace, manifest=manifest)


def _with_batch(trace: Trace, plan: Plan) -> Trace:
    """The trace with the plan's samples in its last step.

    A program shows what it reads: with context parallelism a part of each sequence.
    """
    manifest = trace.manifest
    ranks = plan.data(manifest.world_size)
    samples = plan.micro_batches(manifest.world_size) * plan.micro_batch
    tokens = samples * plan.sequence
    batch = {**manifest.batch, "tokens": tokens, "samples": samples, "data_parallel_ranks": ranks}
    inputs = manifest.step.inputs and (*manifest.step.inputs[:-1], (tokens, samples))
    step = msgspec.structs.replace(manifest.step, inputs=inputs)
    return dataclasses.replace(trace, manifest=msgspec.structs.replace(manifest, step=step, batch=batch))
