"""Evaluate a saved job under another plan (`presim replan`)."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from presim.errors import InputError
from presim.evaluation.options import ReplanOptions
from presim.evaluation.pipeline import Evaluation, evaluate
from presim.trace.coverage import RankCoverage
from presim.trace.job import Job
from presim.verbs.simulate import at_size, world_size_of
from presim.verbs.target import cluster_of_captured, engine_options, what_if_changes

if TYPE_CHECKING:
    from presim.trace.schema import Trace
    from presim.trace.store import StoredJob


def replan_and_evaluate(directory: str | os.PathLike[str], options: ReplanOptions) -> Evaluation:
    """Evaluate a saved job with other numbers of layers, micro-batches and data-parallel ranks.

    What is not set is as captured.

    Raises:
        InputError: there is no such job, it does not repeat layers or micro-batches, its ranks hold shards, or it does
            not fit the cluster.
    """
    from presim.composition.replan.layers import with_layers
    from presim.composition.replan.micro_batches import with_micro_batches
    from presim.trace import store

    if options.save is not None:
        _check_save(options.save, directory, options.larger)
    job = store.load(directory)
    notes = list(job.manifest.notes)
    if options.layers is not None:
        larger = () if options.larger is None else _larger_traces(job, options.larger)
        traces, sentences = with_layers(list(job.traces.values()), options.layers, larger)
        job = dataclasses.replace(job, traces={trace.manifest.rank: trace for trace in traces})
        notes = [*sentences, *notes]
    if options.micro_batches is not None:
        traces, sentences = with_micro_batches(list(job.traces.values()), options.micro_batches)
        job = dataclasses.replace(job, traces={trace.manifest.rank: trace for trace in traces})
        notes = [*sentences, *notes]
    if options.data_parallel is not None:
        world_size = world_size_of(job, options.data_parallel)
        options = dataclasses.replace(options, world_size=world_size, data_parallel=None)
    target = cluster_of_captured(job.manifest, options)
    traces, stands_for, scaled = at_size(job, target.world_size)
    coverage = RankCoverage() if scaled else job.manifest.coverage
    planned = Job(traces, stands_for, coverage, [*scaled, *notes])
    if options.save is not None:
        planned.save(options.save)
    return evaluate(
        planned,
        target,
        engine_options(options),
        rank=options.rank,
        prices=options.price_folders,
        changes=what_if_changes(options),
    )


def _check_save(save: str | os.PathLike[str], *captures: str | os.PathLike[str] | None) -> None:
    """Raise `InputError` if the job cannot be saved there, or would take the place of a capture that it comes from."""
    from presim.trace import store

    store.check_writable(save)
    if any(capture is not None and os.path.realpath(capture) == os.path.realpath(save) for capture in captures):
        raise InputError(f"--save {save} would replace the captured job by the extended one; choose another folder")


def _larger_traces(job: StoredJob, directory: str | os.PathLike[str]) -> list[Trace]:
    """The traces of the same job with more layers."""
    from presim.trace import store

    larger = store.load(directory)
    if larger.traces.keys() != job.traces.keys() or larger.manifest.world_size != job.manifest.world_size:
        raise InputError(
            f"{os.fspath(directory)} has ranks {_numbers(larger)} of {larger.manifest.world_size}, and the job to "
            f"extend {_numbers(job)} of {job.manifest.world_size}; capture the same ranks of both"
        )
    return list(larger.traces.values())


def _numbers(job: StoredJob) -> str:
    return ", ".join(map(str, sorted(job.traces)))
