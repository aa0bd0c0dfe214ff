"""Compose a training job from a model and a plan, and evaluate it (`presim compose`)."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from presim.evaluation.evaluate_traces import Evaluation, evaluate
from presim.evaluation.options import EvaluationOptions
from presim.system.interrupts import simulating
from presim.verbs.simulate import evaluate_saved
from presim.verbs.target import as_captured, chosen_cluster, engine_options, what_if_changes

if TYPE_CHECKING:
    from presim.composition.capture_comparison import Agreement
    from presim.composition.plan import Plan
    from presim.trace.schema import Trace


def compose_and_evaluate(
    model: str,
    plan: Plan,
    options: EvaluationOptions,
    *,
    dtype: str = "bfloat16",
    save: str | os.PathLike[str] | None = None,
    notes: Sequence[str] = (),
) -> Evaluation:
    """Compose a training job from a model's graph and a plan, and evaluate it.

    ``notes``: sentences for the result, before those of the composition.

    Raises:
        InputError: the model cannot be traced, the plan cannot be, or no such cluster is known.
    """
    return _compose(model, plan, options, dtype=dtype, save=save, notes=notes)[0]


def _compose(
    model: str,
    plan: Plan,
    options: EvaluationOptions,
    *,
    dtype: str,
    save: str | os.PathLike[str] | None,
    notes: Sequence[str] = (),
) -> tuple[Evaluation, Sequence[Trace]]:
    from presim.composition.compose import compose
    from presim.composition.graph.take import open_graph
    from presim.cost.estimators import check
    from presim.trace import job_store

    if save is not None:
        job_store.check_writable(save)
    check(options.price_folders)
    target = chosen_cluster(options)
    job = compose(open_graph(model, dtype), plan, target)
    job = dataclasses.replace(job, notes=[*notes, *job.notes])
    if save is not None:
        job.save(save)
    engine, changes = engine_options(options), what_if_changes(options)
    with simulating(save):
        evaluation = evaluate(job, target, engine, prices=options.price_folders, changes=changes)
    return evaluation, job.traces


def compose_like(
    model: str,
    directory: str | os.PathLike[str],
    plan_fields: Mapping[str, object],
    options: EvaluationOptions,
    *,
    plan_file: str | None = None,
    dtype: str = "bfloat16",
    save: str | os.PathLike[str] | None = None,
) -> tuple[Evaluation, Agreement]:
    """Compose what a saved job ran, on its cluster, and compare both.

    The plan is read from the captured trace, then from ``plan_file``; ``plan_fields`` take precedence.

    Raises:
        InputError: there is no such job, the model cannot be traced, or the plan cannot be.
    """
    from presim.composition.capture_comparison import ComparedFigure, compare
    from presim.composition.like import plan_of
    from presim.composition.plan import read_plan
    from presim.trace import job_store

    job = job_store.load(directory)
    plan = read_plan(plan_file, plan_fields, plan_of(job.traces[min(job.traces)], plan_fields))
    captured = evaluate_saved(directory, options).result
    evaluation, traces = _compose(model, plan, as_captured(options, job.manifest), dtype=dtype, save=save)
    composed = evaluation.result
    figures = [
        ComparedFigure("step time", "s", captured.step_time_s or 0.0, composed.step_time_s or 0.0),
        ComparedFigure(
            "peak allocated", "bytes", captured.memory.peak_allocated_bytes, composed.memory.peak_allocated_bytes
        ),
        ComparedFigure(
            "peak reserved", "bytes", captured.memory.peak_reserved_bytes, composed.memory.peak_reserved_bytes
        ),
    ]
    return evaluation, compare(job.traces, {trace.manifest.rank: trace for trace in traces}, figures)
