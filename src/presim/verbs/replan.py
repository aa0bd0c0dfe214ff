"""Evaluate a saved job under another plan (`presim replan`)."""

from __future__ import annotations

import dataclasses
import os

from presim.evaluation.options import ReplanOptions
from presim.evaluation.pipeline import Evaluation, evaluate
from presim.verbs.simulate import at_size, world_size_of
from presim.verbs.target import cluster_of_captured, engine_options, what_if_changes


def replan_and_evaluate(directory: str | os.PathLike[str], options: ReplanOptions) -> Evaluation:
    """Evaluate a saved job with other numbers of micro-batches and data-parallel ranks; what is not set is as captured.

    Raises:
        InputError: there is no such job, it does not repeat micro-batches, its ranks hold shards, or it does not fit
            the cluster.
    """
    from presim.composition.replan.micro_batches import with_micro_batches
    from presim.trace import store

    if options.save is not None:
        store.check_writable(options.save)
    job = store.load(directory)
    notes = list(job.manifest.notes)
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
