"""Evaluate a saved job (`presim simulate`)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from presim.options import EvaluationOptions, SimulateOptions
from presim.pipeline import Evaluation, evaluate
from presim.verbs.target import changes_asked, cluster_of_captured, engine_options

if TYPE_CHECKING:
    from presim.trace.schema import Trace
    from presim.trace.store import Job


def evaluate_saved(directory: str | os.PathLike[str], options: EvaluationOptions) -> Evaluation:
    """Evaluate a saved trace; what the options do not say is as it was captured.

    Raises:
        InputError: there is no trace, it does not fit the cluster, or no such cluster is known.
    """
    from presim.trace import store

    job = store.load(directory)
    captured = job.manifest
    changes = changes_asked(options)
    target = cluster_of_captured(captured, options)
    traces, stands_for, scaled = _at_size(job, target.world_size)
    found = evaluate(
        traces,
        target,
        engine_options(options),
        rank=options.rank,
        stands_for=stands_for,
        coverage=None if scaled else captured.coverage,
        notes=[*scaled, *captured.notes],
        prices=options.price_folders,
        changes=changes,
    )
    if not isinstance(options, SimulateOptions):
        return found
    from presim.verbs.every_rank import with_every_rank

    return with_every_rank(found, changes.cluster(target), options)


def _at_size(job: Job, world_size: int) -> tuple[list[Trace], Mapping[int, Sequence[int]], list[str]]:
    """A job's traces at a world size, who stands for whom, and what a reader should know of it."""
    from presim.trace.rescale import at_world_size

    traces = [job.traces[number] for number in sorted(job.traces)]
    if world_size == job.manifest.world_size:
        return traces, job.manifest.others(), []
    return at_world_size(traces, job.manifest.others(), world_size)
