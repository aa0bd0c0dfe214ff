"""Evaluate a plan by capturing a framework's own program (`presim compose --framework`)."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import textwrap
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from presim.errors import InputError
from presim.evaluation.options import ClusterOptions, EvaluationOptions
from presim.evaluation.pipeline import Evaluation, evaluate
from presim.trace.job import Job
from presim.verbs.target import chosen_cluster, engine_options, what_if_changes

if TYPE_CHECKING:
    from pathlib import Path

    from presim.capture.launchers.launch import Launch
    from presim.capture.processes.forks import Forks
    from presim.composition.frameworks.launched import LaunchedRun
    from presim.composition.frameworks.megatron import FrameworkRun
    from presim.composition.plan import Plan
    from presim.hardware.cluster import Cluster
    from presim.trace.schema import Trace
    from presim.trace.store import StoredJob
    from presim.verbs.run import Progress

    _Captured: TypeAlias = tuple[StoredJob, list[Trace], list[str]]  # with the traces to go on with, and sentences

_LIMIT_S = 3600.0
_MOST_CHARACTERS = 400  # of what the framework says
_WHOLE_EXITS = ("ok", "stopped")


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
    save: str | os.PathLike[str] | None = None,
    progress: Progress = lambda text: None,
) -> Evaluation:
    """Capture a framework with a few micro-batches of a plan, extend them to all, and evaluate the job.

    ``named_fields``, ``overrides``: see `presim.composition.frameworks.megatron.plan_run` and
    `presim.composition.frameworks.launched.launched_run`. ``extends``: False: capture all layers and micro-batches.

    Raises:
        InputError: the framework is not installed, has no such model, or does not take the plan.
        CaptureError: the program cannot be run here.
    """
    from presim.composition.replan.micro_batches import with_micro_batches
    from presim.trace import store

    if save is not None:
        store.check_writable(save)
    target = chosen_cluster(options)
    run: FrameworkRun | LaunchedRun
    if framework == "megatron":
        run_with = _megatron_run(model, plan, named_fields, target, precision, all_micro_batches=not extends)
        run, (job, traces, notes) = _capture_megatron(run_with, overrides, target, progress)
        options = dataclasses.replace(options, host_time=options.host_time and not run.is_whole_graph)
    else:
        run_of = _launched_run(framework, model, plan, named_fields, target, precision, overrides)
        run, (job, traces, notes) = _capture_launched(run_of, plan, target, progress, extends=extends)
    traces = [_titled(trace, model, run) for trace in traces]
    notes = [*run.notes, *notes, *job.manifest.notes]
    is_whole = all(trace.manifest.exit in _WHOLE_EXITS for trace in traces)
    if is_whole and run.step_micro_batches > run.captured_micro_batches:
        traces, sentences = with_micro_batches(traces, run.step_micro_batches)
        notes = [*sentences, *notes]
    traces = [_with_batch(trace, plan) for trace in traces]
    planned = Job(traces, job.manifest.others(), job.manifest.coverage, notes)
    if save is not None:
        planned.save(save)
    prices, changes = options.price_folders, what_if_changes(options)
    return evaluate(planned, target, engine_options(options), prices=prices, changes=changes)


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
        return (folder_of(_megatron_run(model, plan, named_fields, target, precision)(overrides), target),)
    run_of = _launched_run(framework, model, plan, named_fields, target, precision, overrides)
    run = run_of()
    sizes = sizes_to_capture(run, plan)
    return tuple(folder_of(size, target) for size in ([run_of(layers=layers) for layers in sizes] or [run]))


def is_captured(block: Path) -> bool:
    """Whether the capture is kept in the user's cache."""
    from presim.trace import store

    return (block / store.JOB_FILE).exists()


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


def _capture_megatron(
    run_with: Callable[[Sequence[str]], FrameworkRun], overrides: Sequence[str], target: Cluster, progress: Progress
) -> tuple[FrameworkRun, _Captured]:
    """A capture of Megatron; without the CUDA graphs of its recipe, if these are what it refuses."""
    from presim.composition.frameworks.megatron import NO_GRAPHS

    run = run_with(overrides)
    try:
        return run, _whole(run, target, progress)
    except InputError as refusal:
        if not run.has_recipe_graphs:
            raise
        run = run_with((*NO_GRAPHS, *overrides))
        job, traces, notes = _whole(run, target, progress)
        sentence = f"Without the CUDA graphs of the recipe, which cannot be captured: {refusal}."
        return run, (job, traces, [sentence, *notes])


def _capture_launched(
    run_of: Callable[..., LaunchedRun], plan: Plan, target: Cluster, progress: Progress, *, extends: bool
) -> tuple[LaunchedRun, _Captured]:
    """A capture of a framework's launch files, with few layers where these can be extended."""
    from presim.composition.frameworks.launched import sizes_to_capture

    run = run_of(all_micro_batches=not extends)
    sizes = sizes_to_capture(run, plan) if extends else ()
    if not sizes:
        return run, _whole(run, target, progress)
    return run, _extended_layers(run, [run_of(layers=layers) for layers in sizes], target, progress)


def _whole(run: FrameworkRun | LaunchedRun, target: Cluster, progress: Progress) -> _Captured:
    job = _captured(run, target, progress)
    return job, list(job.traces.values()), []


def _extended_layers(
    run: FrameworkRun | LaunchedRun, sizes: Sequence[LaunchedRun], target: Cluster, progress: Progress
) -> _Captured:
    """Captures of two sizes, extended to all layers; where no law holds, all layers are captured."""
    from presim.composition.replan.layers import with_layers

    jobs = [_captured(size, target, progress) for size in sizes]
    smaller, larger = ([job.traces[rank] for rank in sorted(job.traces)] for job in jobs)
    if any(trace.manifest.exit not in _WHOLE_EXITS for trace in (*smaller, *larger)):
        return _whole(run, target, progress)
    try:
        traces, sentences = with_layers(smaller, sizes[0].model_layers, larger)
    except InputError as error:
        job, traces, _ = _whole(run, target, progress)
        return job, traces, [f"All layers were captured, because {error}."]
    return jobs[-1], traces, sentences


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


def _captured(run: FrameworkRun | LaunchedRun, target: Cluster, progress: Progress) -> StoredJob:
    """The captured job; it is kept for the next call, unless the framework refused the plan."""
    from presim.capture.ranks.selection import Checks, select
    from presim.capture.run import CaptureRequest, capture
    from presim.composition.frameworks.kept_captures import folder_of
    from presim.trace import store

    folder = folder_of(run, target)
    if (folder / store.JOB_FILE).exists():
        return store.load(folder)
    progress(run.progress_text)
    selection = select("auto", target.world_size, Checks(0, 0.0))
    with _program(run) as (launch, forks):
        request = CaptureRequest(
            launch,
            selection,
            steps=run.steps,
            limit_s=_LIMIT_S,
            values=run.values,
            hides_output=True,
            hides_failures=True,  # `_check_end` has the framework's words
        )
        job = capture(request, target, progress, forks=forks)
    _check_end(job, run)
    represented = {rank: list(ranks) for rank, ranks in job.stands_for.items()}
    store.save(job.traces, folder, stands_for=represented, coverage=job.coverage, notes=job.notes)
    return store.load(folder)


@contextlib.contextmanager
def _program(run: FrameworkRun | LaunchedRun) -> Iterator[tuple[Launch, Forks | None]]:
    """What starts a run, and where its ranks are forked; launch files lie in the current folder meanwhile."""
    from presim.capture.launchers.launch import Launch
    from presim.capture.launchers.read import read_command
    from presim.capture.processes.forks import RECIPE, Forks
    from presim.composition.frameworks.megatron import FrameworkRun
    from presim.system.files import make_folder, write_file
    from presim.system.files.scratch import temporary_folder

    if isinstance(run, FrameworkRun):
        with Forks((RECIPE, str(run.script))) as forks:  # stages share the imports
            yield Launch(str(run.script), run.arguments), forks
        return
    with temporary_folder("framework") as folder, contextlib.chdir(folder):
        for name, text in run.files.items():
            make_folder((folder / name).parent)
            write_file(folder / name, text.encode())
        yield read_command(run.command), None


def _check_end(job: Job, run: FrameworkRun | LaunchedRun) -> None:
    """Raise InputError with the framework's words if it failed, other than for want of device memory."""
    if any(trace.manifest.exit == "out_of_memory" for trace in job.traces):
        return
    for trace in sorted(job.traces, key=lambda trace: trace.manifest.rank != job.reported_rank):  # its words first
        if trace.manifest.exit not in _WHOLE_EXITS:
            words = " ".join((trace.manifest.error or trace.manifest.exit).split())
            raise InputError(f"{run.name} refused the plan: {textwrap.shorten(words, _MOST_CHARACTERS)}")
