"""Run a search request: connect strategy, workers and storage, and build the answer from the trials."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from presim.composition.frameworks.framework_choice import framework_needed
from presim.composition.plan import Plan
from presim.planner.answer.why import importance, infeasible_reasons, loses_on
from presim.planner.knobs import plan_of
from presim.planner.lines.line_order import line_order, lines_of, notes_on_lines
from presim.planner.objectives import OBJECTIVES
from presim.planner.search_request import SearchRequest
from presim.planner.strategy.kept_bounds import KeptBounds
from presim.planner.strategy.no_pruning import NoPruning
from presim.planner.strategy.plan_bounds import Bounds
from presim.planner.strategy.prune import LOSSY, RulePruner, invalid_rules, rules_of
from presim.planner.strategy.sampler import evaluate_sampled_points
from presim.planner.strategy.search_loop import (
    EvaluationRounds,
    NoStore,
    Progress,
    Pruner,
    evaluate_all_points,
    interrupted_trials,
)
from presim.planner.study import Answer, front_of, overlapping, ranked
from presim.planner.trials.point_evaluator import PlanEvaluator
from presim.planner.trials.storage import open_study
from presim.planner.trials.trial import Trial
from presim.planner.trials.trial_messages import Subject
from presim.planner.trials.worker_pool import Workers
from presim.system.files import to_type
from presim.system.interrupts import caught

if TYPE_CHECKING:
    from presim.planner.trials.ray_workers import RayWorkers

_LISTED = 10  # plans that a table shows


def run(request: SearchRequest, progress: Progress = lambda text: None) -> Answer:
    """Search the space.

    Raises:
        InputError: the request cannot be carried out.
    """
    job = Subject(
        graph=request.graph,
        plan_fields=dict(request.plan_fields),
        command=list(request.command),
        words={name: {value: list(words) for value, words in of.items()} for name, of in request.words.items()},
        options=dict(request.options),
        prune=list(rules_of(request.prune)),
    )
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(open_study(request)) if request.study else NoStore()
        lines = lines_of(request, stack)
        workers = _workers(request, msgspec.structs.replace(job, lines=lines))
        evaluation = EvaluationRounds(request, workers, store, progress)
        with caught() as stop, workers:
            search = evaluate_all_points if request.strategy == "exhaustive" else evaluate_sampled_points
            trials = search(request, evaluation, pruner(request, job) if lines is None else line_order(lines))
        if stop.is_partial:
            stop.unless(evaluation.trials)
            trials = interrupted_trials(request, evaluation)
        ledger = answer(request, trials)
        if lines is not None:
            ledger = msgspec.structs.replace(ledger, notes=[*ledger.notes, *notes_on_lines(lines, trials)])
        if request.trainer is not None and not stop.is_partial:
            from presim.planner.frameworks.framework_prices import with_framework

            ledger = with_framework(request, ledger, progress, evaluation.deadline_s)
        if not request.confirm or stop.is_partial:
            return msgspec.structs.replace(ledger, partial=ledger.partial or stop.is_partial)
        from presim.planner.confirm.captured_ranking import confirm

        return confirm(request, ledger, progress, store=store)


def _workers(request: SearchRequest, job: Subject) -> Workers | RayWorkers:
    if request.ray is None:
        return Workers(job, request.jobs)
    from presim.planner.trials.ray_workers import RayWorkers

    return RayWorkers(job, request.ray, request.jobs)


def pruner(request: SearchRequest, job: Subject) -> Pruner:
    """The pruner of a request; rules apply to plan knobs only, so searches over a command prune nothing."""
    rules = rules_of(request.prune)
    if request.command or request.plan_fields or not rules:
        return NoPruning()
    evaluator = PlanEvaluator(job)
    rules = tuple(rule for rule in rules if rule not in invalid_rules(evaluator.changes))
    return RulePruner(
        rules,
        Bounds(evaluator),
        request.objectives,
        request.work,
        request.constraints,
        request.space.varied,
        gap=request.gap_percent / 100,
        count=max(1, request.confirm, request.framework_plans),
        kept_bounds=KeptBounds(request, evaluator),
    )


def answer(request: SearchRequest, trials: Sequence[Trial]) -> Answer:
    """The answer: trials ranked, with importance, front and notes."""
    request, notes_on_objective = _measurable(request, trials)
    objective, work = request.objectives[0], request.work
    best = ranked(trials, objective, work, request.constraints)
    front = front_of(best, request.objectives, work) if len(request.objectives) > 1 else best[:1]
    loses: dict[str, float] = {}
    if len(best) > 1 and best[0].figures and best[1].figures:
        loses = loses_on(best[0].figures, best[1].figures, objective.name)
    notes = [*_notes(request, trials, bool(best)), *layers_note(request, best)]
    return Answer(
        subject=request.subject,
        objectives=[objective.name for objective in request.objectives],
        strategy=request.strategy,
        varied={name: list(values) for name, values in request.space.varied.items()},
        fixed=dict(request.space.fixed),
        partial=any(trial.fate == "open" for trial in trials),
        complete=request.strategy == "exhaustive" and all(trial.fate != "open" for trial in trials),
        trials=list(trials),
        best=[trial.number for trial in best],
        front=[trial.number for trial in front],
        undecided=[trial.number for trial in overlapping(best, objective, work)],
        importance=importance(trials, request.space.varied, objective, work),
        loses=loses,
        notes=[*notes_on_objective, *notes],
        work=work,
        knob_order=list(request.space.varied),
        points=len(request.space),
    )


def _notes(request: SearchRequest, trials: Sequence[Trial], is_feasible: bool) -> list[str]:
    """Notes on limits of the search, as sentences."""
    notes = list(request.notes)
    notes += [] if is_feasible else [infeasible_reasons(trials, request.constraints, request.work)]
    if request.strategy != "exhaustive" and len(trials) < len(request.space):
        notes.append(
            f"{request.strategy} proposed {len(trials):,} of {len(request.space):,} points: a better point may be "
            "among the others."
        )
    if request.gap_percent and is_feasible and any(trial.rule == "time_bound" for trial in trials):
        notes.append(
            f"No plan that was left out is more than {request.gap_percent:g} % faster than {_compared(request)}: lower "
            "bounds of its step time prove it. --gap 0 also simulates those that may be faster by less."
        )
    lossy = [rule for rule in rules_of(request.prune) if rule in LOSSY]
    if lossy and any(trial.rule in lossy for trial in trials):
        notes.append(f"Pruned by rules that may lose the best plan: {', '.join(lossy)}.")
    return notes


def layers_note(request: SearchRequest, best: Sequence[Trial]) -> list[str]:
    """Whose layers the figures of a model's plans are of, and how many of the listed plans run on others' layers."""
    if not request.graph or request.plan_fields or request.trainer is not None or not best:
        return []
    listed = best[:_LISTED]
    points = [{**request.space.fixed, **trial.point} for trial in listed]
    plans = [to_type(plan_of(point), Plan) for point in points]
    megatron_count = sum(framework_needed(plan, point) == "megatron" for plan, point in zip(plans, points))
    notes = ["Plans are composed from the eager layers of the model's own code."]
    if megatron_count:
        notes.append(
            f"{megatron_count} of the first {len(listed)} need Megatron, which trains with other kernels: --framework "
            "megatron prices the best from captures of its trainer."
        )
    return notes


def _compared(request: SearchRequest) -> str:
    count = max(request.confirm, request.framework_plans)
    return f"the best {count}" if count > 1 else "the best"


def _measurable(request: SearchRequest, trials: Sequence[Trial]) -> tuple[SearchRequest, list[str]]:
    """Fall back to step time as objective if no trial knows its tokens per step; return the request and a note."""
    priced = [trial.figures for trial in trials if trial.figures is not None]
    objective = request.objectives[0]
    if (
        not priced
        or objective.name == "step_time"
        or any(objective.of(figures, request.work) is not None for figures in priced)
    ):
        return request, []
    notes_on_objective = f"No trial has {objective.name}, because the captures counted no tokens: ranked by step time."
    return dataclasses.replace(request, objectives=[OBJECTIVES["step_time"]]), [notes_on_objective]
