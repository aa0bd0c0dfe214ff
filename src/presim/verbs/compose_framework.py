"""Evaluate a plan by capturing a framework's own program (`presim compose --framework`)."""

from __future__ import annotations

import dataclasses
import os
import textwrap
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import msgspec

from presim.errors import InputError
from presim.evaluation.options import EvaluationOptions
from presim.evaluation.pipeline import Evaluation, evaluate
from presim.verbs.target import chosen_cluster, engine_options, what_if_changes

if TYPE_CHECKING:
    from presim.capture.run import Capture
    from presim.composition.frameworks.megatron import FrameworkRun
    from presim.composition.plan import Plan
    from presim.hardware.cluster import Cluster
    from presim.trace.schema import Trace
    from presim.trace.store import Job
    from presim.verbs.run import Progress

_LIMIT_S = 3600.0
_MOST_CHARACTERS = 400  # of what the framework says
_WHOLE_EXITS = ("ok", "stopped")


def capture_plan_and_evaluate(
    model: str,
    plan: Plan,
    named_fields: Collection[str],
    options: EvaluationOptions,
    *,
    precision: str = "bf16",
    overrides: Sequence[str] = (),
    save: str | os.PathLike[str] | None = None,
    progress: Progress = lambda text: None,
) -> Evaluation:
    """Capture Megatron-Bridge with a few micro-batches of a plan, extend them to all, and evaluate the job.

    ``named_fields``, ``overrides``: see `presim.composition.frameworks.megatron.plan_run`.

    Raises:
        InputError: the framework is not installed, has no such model, or does not take the plan.
        CaptureError: the program cannot be run here.
    """
    from presim.composition.frameworks.megatron import plan_run
    from presim.composition.replan.micro_batches import with_micro_batches
    from presim.trace import store

    if save is not None:
        store.check_writable(save)
    target = chosen_cluster(options)
    run = plan_run(model, plan, named_fields, target.world_size, precision, overrides)
    job = _captured(run, target, progress)
    is_whole = all(trace.manifest.exit in _WHOLE_EXITS for trace in job.traces.values())
    traces, notes = [_titled(trace, model) for trace in job.traces.values()], [*run.notes, *job.manifest.notes]
    if is_whole and run.step_micro_batches > run.captured_micro_batches:
        traces, sentences = with_micro_batches(traces, run.step_micro_batches)
        notes = [*run.notes, *sentences, *job.manifest.notes]
    if save is not None:
        store.save(traces, save, stands_for=job.manifest.others(), coverage=job.manifest.coverage, notes=notes)
    return evaluate(
        traces,
        target,
        engine_options(options),
        stands_for=job.manifest.others(),
        coverage=job.manifest.coverage,
        notes=notes,
        prices=options.price_folders,
        changes=what_if_changes(options),
    )


def _titled(trace: Trace, model: str) -> Trace:
    """The trace under the name of what it shows, not of the program that was captured."""
    manifest = msgspec.structs.replace(trace.manifest, script=f"composed from Megatron-Bridge's layers of {model}")
    return dataclasses.replace(trace, manifest=manifest)


def _captured(run: FrameworkRun, target: Cluster, progress: Progress) -> Job:
    """The captured job; it is kept for the next call, unless the framework refused the plan."""
    from presim.capture.launchers.launch import Launch
    from presim.capture.processes.forks import RECIPE, Forks
    from presim.capture.ranks.selection import Checks, select
    from presim.capture.run import Request, capture
    from presim.composition.frameworks.kept_captures import folder_of
    from presim.trace import store

    folder = folder_of(run, target)
    if (folder / store.JOB_FILE).exists():
        return store.load(folder)
    progress(f"capturing {run.captured_micro_batches} of {run.step_micro_batches} micro-batches of each stage")
    request = Request(
        Launch(str(run.script), run.arguments),
        select("auto", target.world_size, Checks(0, 0.0)),
        steps=run.steps,
        limit_s=_LIMIT_S,
        values=run.values,
        hides_output=True,
    )
    with Forks((RECIPE, str(run.script))) as forks:  # stages share the imports
        job = capture(request, target, progress, forks=forks)
    _check_end(job)
    represented = {rank: list(ranks) for rank, ranks in job.stands_for.items()}
    store.save(job.traces, folder, stands_for=represented, coverage=job.coverage, notes=job.notes)
    return store.load(folder)


def _check_end(job: Capture) -> None:
    """Raise InputError with the framework's words if it failed, other than for want of device memory."""
    if any(trace.manifest.exit == "out_of_memory" for trace in job.traces):
        return
    for trace in job.traces:
        if trace.manifest.exit not in _WHOLE_EXITS:
            words = " ".join((trace.manifest.error or trace.manifest.exit).split())
            raise InputError(f"Megatron-Bridge refused the plan: {textwrap.shorten(words, _MOST_CHARACTERS)}")
