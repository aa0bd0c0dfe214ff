"""Evaluate a saved job (`presim simulate`)."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from presim.errors import InputError
from presim.evaluation.evaluate_traces import Evaluation, evaluate
from presim.evaluation.idle_machine import prepare
from presim.evaluation.options import EvaluationOptions, SimulateOptions
from presim.trace.coverage import RankCoverage
from presim.trace.job import Job
from presim.verbs.more_ranks import at_size, wider_job, world_size_of
from presim.verbs.target import cluster_of_captured, engine_options, what_if_changes

if TYPE_CHECKING:
    from presim.evaluation.what_if import Changes
    from presim.trace.job_store import StoredJob
    from presim.verbs.hardware_events import EventFile


def evaluate_saved(directory: str | os.PathLike[str], options: EvaluationOptions) -> Evaluation:
    """Evaluate a saved trace; options that are not set are as captured.

    Raises:
        InputError: there is no trace, it does not fit the cluster, or no such cluster is known.
    """
    from presim.trace import job_store

    job = job_store.load(directory)
    captured = job.manifest
    changes = what_if_changes(options)
    simulation = options if isinstance(options, SimulateOptions) else SimulateOptions()
    wider = wider_job(job, directory, simulation.wider)
    if simulation.scale is not None:
        options = dataclasses.replace(simulation, world_size=_world_of(job, simulation.scale, wider), scale=None)
    target = cluster_of_captured(captured, options)
    traces, stands_for, scaled = at_size(job, target.world_size, wider)
    events = options.events if isinstance(options, SimulateOptions) else None
    file = None if events is None else _read_events(Path(events), changes)
    coverage = RankCoverage() if scaled else captured.coverage
    evaluate_with = functools.partial(
        evaluate,
        Job(traces, stands_for, coverage, [*scaled, *captured.notes]),
        target,
        engine_options(options),
        rank=options.rank,
        prices=options.price_folders,
        prepared=prepare(traces, rank=options.rank),
    )
    evaluation = evaluate_with(changes=changes)
    if not isinstance(options, SimulateOptions):
        return evaluation
    if file is not None:
        evaluation = _with_events(evaluation, file, evaluate_with, changes)
    from presim.verbs.every_rank import with_every_rank

    return with_every_rank(evaluation, changes.changed_cluster(target), options)


def _read_events(path: Path, changes: Changes) -> EventFile:
    from presim.verbs.hardware_events import read_events

    if changes.bandwidth or changes.stragglers or changes.operators or changes.failed or changes.estimators:
        raise InputError("--events changes the hardware over a run; leave other what-if options out")
    return read_events(path)


def _with_events(
    evaluation: Evaluation, file: EventFile, evaluate_with: Callable[..., Evaluation], base: Changes
) -> Evaluation:
    """The evaluation with the run of a file of events, and a note on it; ``base``: changes that hold all the time."""
    from presim.verbs.hardware_events import run_under_events, sentence

    def step_time_s(events: Changes) -> float:
        changes = dataclasses.replace(events, isolated_groups=base.isolated_groups)
        result = evaluate_with(changes=changes, brief=True).result if events else evaluation.result
        if result.step_time_s is None:
            raise InputError("--events needs a job with steps; capture one that trains, or more of it")
        return result.step_time_s

    run = run_under_events(file, step_time_s)
    notes = [sentence(run), *evaluation.result.notes]
    return dataclasses.replace(
        evaluation, result=msgspec.structs.replace(evaluation.result, hardware_events=run, notes=notes)
    )


def _world_of(job: StoredJob, scale: str, wider: StoredJob | None) -> int:
    """The world size with another degree of data parallelism, as ``dp=N``."""
    name, _, number = scale.partition("=")
    if name != "dp" or not number.isdecimal() or int(number) < 1:
        raise InputError(
            f"--scale takes dp=N, the number of data-parallel ranks; got {scale!r}. Along other dimensions the work of "
            "each rank changes: capture the job with them"
        )
    return world_size_of(job, int(number), wider)
