"""Evaluate a saved job under another plan (`presim replan`)."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from presim.errors import InputError
from presim.evaluation.evaluate_traces import Evaluation, evaluate
from presim.evaluation.options import ReplanOptions
from presim.system.interrupts import simulating
from presim.trace.coverage import RankCoverage
from presim.trace.job import Job
from presim.verbs.more_ranks import at_size, wider_job, world_size_of
from presim.verbs.target import cluster_of_captured, engine_options, what_if_changes

if TYPE_CHECKING:
    from presim.hardware.cluster import Cluster
    from presim.trace.job_store import StoredJob
    from presim.trace.schema import Trace


def replan_and_evaluate(directory: str | os.PathLike[str], options: ReplanOptions) -> Evaluation:
    """Evaluate a saved job with other numbers of layers, micro-batches and data-parallel ranks.

    What is not set is as captured.

    Raises:
        InputError: there is no such job, it does not repeat layers or micro-batches, its ranks hold shards and no
            wider capture says how these follow, or it does not fit the cluster.
    """
    from presim.composition.replan.micro_batches import with_micro_batches
    from presim.trace import job_store

    if options.save is not None:
        _check_save(options.save, directory, options.larger, options.wider)
    job = job_store.load(directory)
    asks_for_ranks = options.data_parallel or options.world_size not in (None, job.manifest.world_size)
    wider = wider_job(job, directory, options.wider) if options.wider is not None or asks_for_ranks else None
    if wider is not None:
        planned, target = _on_more_ranks(job, wider, options)
    elif options.pipeline is not None:
        planned, target = _with_more_stages(job, options.pipeline, options)
    else:
        planned, target = _rescaled(_with_more_layers(job, options), options)
    if options.micro_batches is not None:
        traces, sentences = with_micro_batches(planned.traces, options.micro_batches)
        planned = Job(traces, planned.stands_for, planned.coverage, [*sentences, *planned.notes])
    if options.save is not None:
        planned.save(options.save)
    engine, prices, changes = engine_options(options), options.price_folders, what_if_changes(options)
    with simulating(options.save):
        return evaluate(planned, target, engine, rank=options.rank, prices=prices, changes=changes)


def _with_more_layers(job: StoredJob, options: ReplanOptions) -> tuple[StoredJob, list[str]]:
    """The job with its layers, and sentences for the reader."""
    from presim.composition.replan.replan_layers import with_layers

    if options.layers is None:
        return job, []
    larger = () if options.larger is None else _larger_traces(job, options.larger)
    traces, sentences = with_layers(list(job.traces.values()), options.layers, larger)
    return dataclasses.replace(job, traces={trace.manifest.rank: trace for trace in traces}), sentences


def _rescaled(layered: tuple[StoredJob, list[str]], options: ReplanOptions) -> tuple[Job, Cluster]:
    """The job on as many ranks as the options ask for, and their cluster."""
    job, sentences = layered
    if options.data_parallel is not None:
        world_size = world_size_of(job, options.data_parallel)
        options = dataclasses.replace(options, world_size=world_size, data_parallel=None)
    target = cluster_of_captured(job.manifest, options)
    traces, stands_for, scaled = at_size(job, target.world_size)
    coverage = RankCoverage() if scaled else job.manifest.coverage
    return Job(traces, stands_for, coverage, [*scaled, *sentences, *job.manifest.notes]), target


def _with_more_stages(job: StoredJob, stages: int, options: ReplanOptions) -> tuple[Job, Cluster]:
    """The job with so many pipeline stages, and its cluster."""
    from presim.composition.replan.replan_stages import with_stages

    traces, stands_for, sentences = with_stages(
        list(job.traces.values()), stages, job.manifest.others(), options.micro_batches
    )
    world_size = traces[0].manifest.world_size
    sized = options if options.cluster or options.world_size else dataclasses.replace(options, world_size=world_size)
    target = cluster_of_captured(job.manifest, sized)
    if target.world_size != world_size:
        raise InputError(
            f"{stages} stages of {world_size // stages} ranks, as captured, take {world_size} GPUs, and the options "
            f"ask for {target.world_size}; leave out --world-size"
        )
    return Job(traces, stands_for, RankCoverage(), [*sentences, *job.manifest.notes]), target


def _on_more_ranks(job: StoredJob, wider: StoredJob, options: ReplanOptions) -> tuple[Job, Cluster]:
    """The job on as many ranks as the options ask for, by a wider capture of it, and their cluster."""
    from presim.composition.replan.replan_layers import with_layers
    from presim.composition.replan.replan_ranks import with_ranks

    if options.data_parallel is not None:
        world_size = world_size_of(job, options.data_parallel, wider)
        options = dataclasses.replace(options, world_size=world_size, data_parallel=None)
    target = cluster_of_captured(wider.manifest, options)
    smaller, larger = (list(captured.traces.values()) for captured in (job, wider))
    traces, stands_for, sentences = with_ranks(smaller, larger, wider.manifest.others(), target.world_size)
    if options.layers is not None:
        traces, further = with_layers(traces, options.layers)
        sentences = [*further, *sentences]
    return Job(traces, stands_for, RankCoverage(), [*sentences, *wider.manifest.notes]), target


def _check_save(save: str | os.PathLike[str], *captures: str | os.PathLike[str] | None) -> None:
    """Raise `InputError` if the job cannot be saved there, or would take the place of a capture that it comes from."""
    from presim.trace import job_store

    job_store.check_writable(save)
    if any(capture is not None and os.path.realpath(capture) == os.path.realpath(save) for capture in captures):
        raise InputError(f"--save {save} would replace the captured job by the extended one; choose another folder")


def _larger_traces(job: StoredJob, directory: str | os.PathLike[str]) -> list[Trace]:
    """The traces of the same job with more layers."""
    from presim.trace import job_store

    larger = job_store.load(directory)
    if larger.traces.keys() != job.traces.keys() or larger.manifest.world_size != job.manifest.world_size:
        raise InputError(
            f"{os.fspath(directory)} has ranks {_numbers(larger)} of {larger.manifest.world_size}, and the job to "
            f"extend {_numbers(job)} of {job.manifest.world_size}; capture the same ranks of both"
        )
    return list(larger.traces.values())


def _numbers(job: StoredJob) -> str:
    return ", ".join(map(str, sorted(job.traces)))
