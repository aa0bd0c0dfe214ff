"""Captures of frameworks' own programs, of as little as says what a plan does; kept for the next call."""

from __future__ import annotations

import contextlib
import dataclasses
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from presim.errors import InputError

if TYPE_CHECKING:
    from presim.capture.launchers.launch import Launch
    from presim.capture.processes.forks import Forks
    from presim.composition.frameworks.launched import LaunchedRun
    from presim.composition.frameworks.megatron import FrameworkRun
    from presim.composition.plan import Plan
    from presim.hardware.cluster import Cluster
    from presim.trace.job import Job
    from presim.trace.job_store import StoredJob
    from presim.trace.schema import Trace
    from presim.verbs.run import Progress

_LIMIT_S = 3600.0
_MOST_CHARACTERS = 400  # of what the framework says
_WHOLE_EXITS = ("ok", "stopped")


@dataclasses.dataclass(frozen=True)
class CapturedPlan:
    """A capture that answers for a plan, with fewer micro-batches than its steps have."""

    job: StoredJob
    traces: list[Trace]  # to go on with
    stands_for: Mapping[int, Sequence[int]]  # ranks that those of the traces represent
    notes: list[str]
    has_all_micro_batches: bool = False  # of a step, not only those captured

    @property
    def is_whole(self) -> bool:
        """Whether no rank failed."""
        return all(trace.manifest.exit in _WHOLE_EXITS for trace in self.traces)


def capture_megatron(
    run_with: Callable[[Sequence[str]], FrameworkRun],
    short_run: Callable[[FrameworkRun], FrameworkRun | None],
    few_layers: Callable[[FrameworkRun], Sequence[FrameworkRun]],
    overrides: Sequence[str],
    plan: Plan,
    target: Cluster,
    micro_batches: int | None,
    progress: Progress,
) -> tuple[FrameworkRun, CapturedPlan]:
    """A capture of Megatron; without the CUDA graphs of its recipe, if these are what it refuses.

    ``micro_batches``: of the last step, where stages are composed; None: all. ``short_run``: of few stages of a
    pipeline, None if all are needed. ``few_layers``: runs of two numbers of layers, none if all are needed.
    """
    from presim.composition.frameworks.megatron import NO_GRAPHS

    run = run_with(overrides)
    try:
        if sizes := few_layers(run):
            return run, _extended_layers(run, sizes, sizes[0].model_layers, target, progress)
        return run, _extended_stages(run, short_run(run), plan, target, micro_batches, progress)
    except InputError as refusal:
        if not run.has_recipe_graphs:
            raise
        run = run_with((*NO_GRAPHS, *overrides))
        captured = _extended_stages(run, short_run(run), plan, target, micro_batches, progress)
        sentence = f"Without the CUDA graphs of the recipe, which cannot be captured: {refusal}."
        return run, dataclasses.replace(captured, notes=[sentence, *captured.notes])


def _extended_stages(
    run: FrameworkRun,
    short: FrameworkRun | None,
    plan: Plan,
    target: Cluster,
    micro_batches: int | None,
    progress: Progress,
) -> CapturedPlan:
    """A capture of a few stages, extended to all; where no law holds, all stages are captured."""
    from presim.composition.replan.replan_interleaved import with_interleaved_stages
    from presim.composition.replan.replan_stages import with_stages

    short_target = None if short is None else with_fewer_stages(target, plan.pipeline, short.captured_stages)
    if short is None or short_target is None:
        return _whole(run, target, progress)
    try:
        captured = _whole(short, short_target, progress)
        if not captured.is_whole:
            exits = {trace.manifest.exit for trace in captured.traces}
            raise InputError(f"the capture of {short.captured_stages} ended with {', '.join(sorted(exits))}")
        micro_batches = micro_batches or run.step_micro_batches
        progress(f"composing {plan.pipeline} stages of {micro_batches} micro-batches")
        if plan.virtual > 1:
            traces, stands_for, sentences = with_interleaved_stages(
                captured.traces, plan.pipeline, plan.virtual, captured.stands_for, micro_batches, short.captured_ends
            )
        else:
            traces, stands_for, sentences = with_stages(
                captured.traces, plan.pipeline, captured.stands_for, micro_batches, short.captured_ends
            )
    except InputError as error:
        progress(f"all stages are captured, because {error}")
        captured = _whole(run, target, progress)
        return dataclasses.replace(captured, notes=[f"All stages were captured, because {error}."])
    placed = [_on_nodes_of(target, trace) for trace in traces]
    return CapturedPlan(captured.job, placed, stands_for, sentences, has_all_micro_batches=plan.virtual > 1)


def _on_nodes_of(target: Cluster, trace: Trace) -> Trace:
    manifest = msgspec.structs.replace(trace.manifest, gpus_per_node=target.gpus_per_node)
    return dataclasses.replace(trace, manifest=manifest)


def with_fewer_stages(target: Cluster, stages: int, fewer: int) -> Cluster | None:
    """The GPUs of a cluster that so many of its stages take; None: they are no whole number of equal nodes."""
    ranks = target.world_size // stages * fewer
    gpus_per_node = min(target.gpus_per_node, ranks)
    if ranks % gpus_per_node or target.groups or target.network:
        return None
    return msgspec.structs.replace(target, nodes=ranks // gpus_per_node, gpus_per_node=gpus_per_node)


def capture_launched(
    run_of: Callable[..., LaunchedRun], plan: Plan, target: Cluster, progress: Progress, *, extends: bool
) -> tuple[LaunchedRun, CapturedPlan]:
    """A capture of a framework's launch files, with few layers where these can be extended."""
    from presim.composition.frameworks.launched import sizes_to_capture

    run = run_of(all_micro_batches=not extends)
    sizes = sizes_to_capture(run, plan) if extends else ()
    if not sizes:
        return run, _whole(run, target, progress)
    return run, _extended_layers(run, [run_of(layers=layers) for layers in sizes], run.model_layers, target, progress)


def _whole(run: FrameworkRun | LaunchedRun, target: Cluster, progress: Progress) -> CapturedPlan:
    job = _captured(run, target, progress)
    return CapturedPlan(job, list(job.traces.values()), job.manifest.others(), [])


def _extended_layers(
    run: FrameworkRun | LaunchedRun,
    sizes: Sequence[FrameworkRun | LaunchedRun],
    layers: int,
    target: Cluster,
    progress: Progress,
) -> CapturedPlan:
    """Captures of two sizes, extended to all layers; where no law holds, all layers are captured."""
    from presim.composition.replan.replan_layers import with_layers

    try:
        with _shared_forks(run) as forks:
            jobs = [_captured(size, target, progress, forks) for size in sizes]
        smaller, larger = ([job.traces[rank] for rank in sorted(job.traces)] for job in jobs)
        if any(trace.manifest.exit not in _WHOLE_EXITS for trace in (*smaller, *larger)):
            return _whole(run, target, progress)
        traces, sentences = with_layers(smaller, layers, larger)
    except InputError as error:  # also by a framework that refuses so few layers
        captured = _whole(run, target, progress)
        return dataclasses.replace(captured, notes=[f"All layers were captured, because {error}."])
    return CapturedPlan(jobs[-1], traces, jobs[-1].manifest.others(), sentences)


def _captured(
    run: FrameworkRun | LaunchedRun, target: Cluster, progress: Progress, forks: Forks | None = None
) -> StoredJob:
    """The captured job; it is kept for the next call, unless the framework refused the plan.

    ``forks``: of a process with the program's imports, None to start it.
    """
    from presim.capture.capture_job import CaptureRequest, capture
    from presim.capture.ranks.rank_selection import Checks, select
    from presim.composition.frameworks.kept_captures import folder_of
    from presim.trace import job_store

    folder = folder_of(run, target)
    if (folder / job_store.JOB_FILE).exists():
        return job_store.load(folder)
    progress(run.progress_text)
    selection = select("auto", target.world_size, Checks(0, 0.0))
    with _program(run, forks) as (launch, forks):
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
    job_store.save(job.traces, folder, stands_for=represented, coverage=job.coverage, notes=job.notes)
    return job_store.load(folder)


@contextlib.contextmanager
def _shared_forks(run: FrameworkRun | LaunchedRun) -> Iterator[Forks | None]:
    """Where ranks of several captures of Megatron's program are forked; its imports take longer than a few layers."""
    from presim.capture.processes.forks import RECIPE, Forks
    from presim.composition.frameworks.megatron import FrameworkRun

    if isinstance(run, FrameworkRun):
        with Forks((RECIPE, str(run.script))) as forks:
            yield forks
    else:
        yield None


@contextlib.contextmanager
def _program(run: FrameworkRun | LaunchedRun, forks: Forks | None) -> Iterator[tuple[Launch, Forks | None]]:
    """What starts a run, and where its ranks are forked; launch files lie in the current folder meanwhile."""
    from presim.capture.launchers.launch import Launch
    from presim.capture.launchers.launch_command import read_command
    from presim.composition.frameworks.megatron import FrameworkRun
    from presim.system.files import make_folder, write_file
    from presim.system.files.scratch import temporary_folder

    if isinstance(run, FrameworkRun):
        launch = Launch(str(run.script), run.arguments)
        if forks is not None:
            yield launch, forks
            return
        with _shared_forks(run) as shared_forks:  # stages share the imports
            yield launch, shared_forks
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
