"""Verbs on saved jobs and results: compare them, explain one, project a whole training."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from presim.errors import InputError
from presim.evaluation.options import EvaluationOptions
from presim.system.budgets import Budget
from presim.system.interrupts import caught
from presim.verbs.simulate import evaluate_saved
from presim.verbs.target import as_captured, cluster_of_saved

if TYPE_CHECKING:
    from presim.composition.plan import Plan
    from presim.result import Result
    from presim.result.comparison import Comparison
    from presim.result.explanation import CapturedCandidates, Explanation, Gain
    from presim.result.training import Projection
    from presim.studies.explain.confirm import CaptureOptions
    from presim.studies.projection.token_budget import ProjectionRequest
    from presim.verbs.run import Progress


def result_of(job: str | os.PathLike[str]) -> Result:
    """The result of a saved job on its own cluster, or a result file.

    Raises:
        InputError: it cannot be read.
    """
    from presim.report import json

    path = _existing(job)
    return evaluate_saved(path, EvaluationOptions()).result if path.is_dir() else json.read(path)


def _existing(job: str | os.PathLike[str]) -> Path:
    path = Path(job)
    if not path.exists():
        raise InputError(f"there is no {path}; name a folder written by --save or a file written by --json")
    return path


def project_training(
    job: str | os.PathLike[str],
    request: ProjectionRequest,
    *,
    budget: Budget | None = None,
    keeps_finished: bool = False,
) -> Projection:
    """A whole training from a step of a saved job or a result.

    ``budget``: what the simulation may take; None is the default. ``keeps_finished``: an interrupt gives the figures of
    the trainings that are simulated by then, marked as partial.

    Raises:
        InputError: the job cannot be read, has no step or tokens, or the training would not end.
    """
    from presim.hardware import catalogue
    from presim.studies.projection.projection import project

    result = result_of(job)
    return project(result, request, catalogue.gpu(result.job.gpu), budget=budget, keeps_finished=keeps_finished)


def compare_jobs(
    jobs: Sequence[str | os.PathLike[str]],
    variants: Sequence[tuple[str, EvaluationOptions]] = (),
    *,
    keeps_finished: bool = False,
) -> Comparison:
    """Compare the first of several saved jobs or results with the others, and with itself under other options.

    ``variants``: a label and the options that the first job is simulated with. ``keeps_finished``: an interrupt gives
    the comparison of the results that are there by then, marked as partial.

    Raises:
        InputError: one of them cannot be read or does not fit its cluster; other options are given for a result.
    """
    from presim.analysis.compare import compare

    for job in jobs:
        _existing(job)  # before the first is simulated
    results: list[tuple[str, Result]] = []
    with caught(keeps_finished) as stop:
        results.extend((os.fspath(job), result_of(job)) for job in jobs)  # an interrupt keeps those before it
        if variants and not Path(jobs[0]).is_dir():
            named = f"{jobs[0]} is a result, and only a saved job can be simulated again"
            raise InputError(f"{named}: name its folder first")
        results.extend((label, evaluate_saved(jobs[0], options).result) for label, options in variants)
    stop.unless(len(results) > 1)
    return compare(results, partial=stop.is_partial)


def explain_job(
    directory: str | os.PathLike[str],
    options: EvaluationOptions,
    *,
    model: str | None = None,
    plan_file: str | None = None,
    dtype: str = "bfloat16",
    captures: CaptureOptions | None = None,
    progress: Progress = lambda text: None,
    keeps_finished: bool = False,
) -> Explanation:
    """Find what limits a saved job, and what would help.

    ``model``: the trained model, so that other plans can be composed; ``plan_file`` completes the plan of the capture.
    ``captures``: which candidates to capture on the real program. ``keeps_finished``: an interrupt gives the candidates
    that are simulated and captured by then, marked as partial.

    Raises:
        InputError: there is no job, it has no step time, its plan is not known, or a command cannot be captured.
    """
    from presim.composition.like import plan_of
    from presim.composition.plan import read_plan
    from presim.studies.explain import confirm
    from presim.studies.explain.explain import ComposedPlan, explain
    from presim.trace import job_store

    captures = captures or confirm.CaptureOptions()
    confirm.check(captures, model)
    job = job_store.load(directory)
    captured_options = as_captured(options, job.manifest)
    planned = None
    if model is not None:
        from presim.verbs.compose import compose_and_evaluate

        plan = read_plan(plan_file, {}, plan_of(job.traces[min(job.traces)], {}))

        def compose(plan: Plan) -> Result:
            return compose_and_evaluate(model, plan, captured_options, dtype=dtype).result

        planned = ComposedPlan(plan, compose)

    def simulate(changed: EvaluationOptions) -> Result:
        return evaluate_saved(directory, changed).result

    def confirmed(plans: Sequence[tuple[Gain, Plan]]) -> CapturedCandidates:
        plan = planned.plan if planned else None
        point = confirm.current_point(captures, plan)
        candidates = [*confirm.plan_candidates(plans, captures, plan), *confirm.varied_candidates(captures, point)]
        request = confirm.request_of(model or " ".join(captures.command), captures, _capture_options(captured_options))
        return confirm.confirm(captures, request, point, candidates, progress, keeps_finished=keeps_finished)

    evaluation, cluster = evaluate_saved(directory, options), cluster_of_saved(directory, options)
    confirms = confirmed if captures else None
    return explain(
        directory, evaluation, cluster, options, simulate, planned, confirms, progress, keeps_finished=keeps_finished
    )


def _capture_options(options: EvaluationOptions) -> dict[str, object]:
    """What a capture is given: the cluster and the simulation, not one rank."""
    return {name: value for name, value in dataclasses.asdict(options).items() if value is not None and name != "rank"}
