"""Evaluate a saved job under another plan (`presim replan`)."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from presim.errors import InputError
from presim.evaluation.options import ReplanOptions
from presim.evaluation.pipeline import Evaluation, evaluate
from presim.verbs.simulate import at_size, world_size_of
from presim.verbs.target import cluster_of_captured, engine_options, what_if_changes

if TYPE_CHECKING:
    from presim.trace.schema import Trace
    from presim.trace.store import Job


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
        store.check_writable(options.save)
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
    notes = [*scaled, *notes]
    coverage = None if scaled else job.manifest.coverage
    if options.save is not None:
        store.save(traces, options.save, stands_for=stands_for, coverage=coverage, notes=notes)
    return evaluate(
        traces,
        target,
        engine_options(options),
        rank=options.rank,
        stands_for=stands_for,
        coverage=coverage,
        notes=notes,
        prices=options.price_folders,
        changes=what_if_changes(options),
    )


def _larger_traces(job: Job, directory: str | os.PathLike[str]) -> list[Trace]:
    """The traces of the same job with more layers."""
    from presim.trace import store

    larger = store.load(directory)
    if larger.traces.keys() != job.traces.keys() or larger.manifest.world_size != job.manifest.world_size:
        raise InputError(
            f"{os.fspath(directory)} has ranks {_numbers(larger)} of {larger.manifest.world_size}, and the job to "
            f"extend {_numbers(job)} of {job.manifest.world_size}; capture the same ranks of both"
        )
    return list(larger.traces.values())


def _numbers(job: Job) -> str:
    return ", ".join(map(str, sorted(job.traces)))
