"""Correct a cluster's description by a run of the user's own (`presim calibrate job`)."""

from __future__ import annotations

import dataclasses
import os
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from presim.engine.calls import NO_CALLS, TYPICAL_CALLS
from presim.engine.simulation_options import Options
from presim.errors import InputError
from presim.evaluation import evaluate_traces
from presim.evaluation.idle_machine import prepare
from presim.evaluation.options import ClusterOptions, EvaluationOptions
from presim.trace.job import Job

if TYPE_CHECKING:
    from presim.hardware import Cluster
    from presim.studies.calibrate.fit_cluster import ClusterCalibration
    from presim.studies.calibrate.log_lines import StepWork
    from presim.studies.calibrate.parts import Part
    from presim.trace.schema import Trace


def calibrate_job(
    run: Sequence[str],
    options: ClusterOptions,
    *,
    trace: str | os.PathLike[str] | None = None,
    change: Part | None = None,
    step: int | None = None,
    missing: Literal["refuse", "same"] = "refuse",
) -> ClusterCalibration:
    """Fit the cluster to a profile, a log with step times, or the seconds of a step.

    ``trace``: folder of the same job as captured by presim. ``change``: the part of the cluster to adjust.

    Raises:
        InputError: the run cannot be read or explained, or a step time has no captured job beside it.
    """
    from presim.sources.kineto.events import is_profile
    from presim.studies.calibrate import fit_cluster
    from presim.studies.calibrate.logs import median_step_times_s, step_times_s

    captured = Job.load(trace) if trace is not None else None
    paths = [Path(name) for name in run]
    if all(path.is_dir() or is_profile(path) for path in paths):
        return _by_profile(paths, options, captured, trace, step, missing)
    if len(run) != 1:
        raise InputError(f"{len(run)} runs are named; name the profiles of one, or one log or step time")
    times_s = step_times_s(run[0], _step_work(captured, trace, options) if captured is not None else None)
    used_s, held_out_s = median_step_times_s(times_s)
    if captured is None:
        raise InputError(
            "a step time alone does not say what the job is: name its captured folder with --trace (presim run "
            "--save), or give a profile of the run"
        )
    cluster = _cluster_of(trace, options)
    return fit_cluster.fit_to_step_time(cluster, _predictor(captured), used_s, held_out_s, change)


def _step_work(captured: Job, trace: str | os.PathLike[str] | None, options: ClusterOptions) -> StepWork:
    """What a step of the captured job works on, for logs of rates."""
    from presim.studies.calibrate.log_lines import StepWork

    result = evaluate_traces.evaluate(captured, _cluster_of(trace, options), brief=True).result
    throughput, step_s = result.throughput, result.step_time_s or 0.0
    tokens, samples = (
        rate * step_s if rate is not None else None for rate in (throughput.tokens_per_s, throughput.samples_per_s)
    )
    return StepWork(tokens, samples, result.job.world_size)


def _by_profile(
    paths: Sequence[Path],
    options: ClusterOptions,
    captured: Job | None,
    trace: str | os.PathLike[str] | None,
    step: int | None,
    missing: Literal["refuse", "same"],
) -> ClusterCalibration:
    from presim.cost.profiled import origin_of
    from presim.hardware import choose_cluster
    from presim.sources.kineto.profile_source import Kineto
    from presim.sources.readers import open_files
    from presim.sources.source import SourceRequest
    from presim.studies.calibrate import fit_cluster

    request = SourceRequest(**dataclasses.asdict(options), step=step, missing=missing)
    source = open_files(paths, request, "kineto")
    profiled = source.job()
    measured = profiled.traces[0].manifest.measured
    assert measured is not None  # every Kineto source sets it
    cluster = choose_cluster(cluster=options.cluster) if options.cluster else origin_of(measured)
    if captured is not None:
        cluster = _cluster_of(trace, options)
    replayed = Options(host_factor=1.0, calls=NO_CALLS)  # the profile's own hosts, with their calls
    models = Job(tuple(map(fit_cluster.as_predicted, profiled.traces)), profiled.stands_for)
    predict = _predictor(captured) if captured is not None else _predictor(models, replayed)
    isolated = _find_isolated(profiled, origin_of(measured), replayed)
    calibration = fit_cluster.fit_to_profile(profiled.traces, cluster, predict, measured.step_ns / 1e9, isolated)
    calibration = _with_memory(calibration, source.paths if isinstance(source, Kineto) else (), captured, cluster)
    if captured is None:
        note = "The host factor stays: only the captured job (--trace) tells how long its code takes on presim's host."
        return dataclasses.replace(calibration, notes=(*calibration.notes, note))
    reference = prepare(captured.traces).traces[0]
    factor = fit_cluster.host_factor_of_profile(profiled.traces[0], reference, _calls_ns(reference))
    return calibration if factor is None else fit_cluster.with_host_factor(calibration, factor, predict)


def _find_isolated(profiled: Job, cluster: Cluster, options: Options) -> list[np.ndarray]:
    """By rank and entry, whether work of the profile ran without other work beside it."""
    from presim.studies.calibrate.overlapped import runs_alone

    evaluation = evaluate_traces.evaluate(profiled, cluster, options, brief=True)
    ranks = [trace.manifest.rank for trace in profiled.traces]
    return [
        runs_alone(evaluation.ranks[rank].trace, evaluation.timelines[rank], evaluation.ranks[rank].durations_ns())
        for rank in ranks
    ]


def _with_memory(
    calibration: ClusterCalibration, paths: Sequence[Path], captured: Job | None, cluster: Cluster
) -> ClusterCalibration:
    """The calibration with a comparison of memory peaks: the profile's, and the captured job's steady step's."""
    from presim.sources.kineto.profiled_memory import read_peaks
    from presim.studies.calibrate.fit_cluster import MemoryCheck

    peaks = read_peaks(paths)
    if peaks is None:
        note = "Memory is not compared: the profile has no memory events (profile_memory=True records them)."
    elif captured is None:
        note = "Memory is not compared: only the captured job (--trace) tells what presim predicts."
    else:
        memory = evaluate_traces.evaluate(captured, cluster).result.memory
        predicted = memory.step_peak_allocated_bytes, memory.step_peak_reserved_bytes
        return dataclasses.replace(calibration, memory=MemoryCheck(peaks.allocated, peaks.reserved, *predicted))
    return dataclasses.replace(calibration, notes=(*calibration.notes, note))


def _cluster_of(trace: str | os.PathLike[str] | None, options: ClusterOptions) -> Cluster:
    from presim.verbs.target import cluster_of_saved

    assert trace is not None
    return cluster_of_saved(trace, EvaluationOptions(**dataclasses.asdict(options)))


def _predictor(job: Job, options: Options | None = None) -> Callable[[Cluster], float]:
    prepared = prepare(job.traces)

    def predict(cluster: Cluster) -> float:
        result = evaluate_traces.evaluate(job, cluster, options, prepared=prepared, brief=True).result
        if result.step_time_s is None:
            raise InputError("the captured job has no step time; capture it with an optimizer step or a profiled step")
        return result.step_time_s

    return predict


def _calls_ns(trace: Trace) -> int:
    """Host time of a step's library calls on a real host, ns, beyond the captured time."""
    costs = TYPICAL_CALLS.of(trace)
    steps = trace.steps()
    return int(statistics.median(int(np.sum(costs[step])) for step in steps[1:] or steps)) if steps else 0
