"""Price the best composed plans from captures of a framework, which plans share where they can, and rank them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from presim.errors import InputError
from presim.planner.answer.why import loses_on
from presim.planner.frameworks.choice import PlanBlocks, PlansToCapture, choose
from presim.planner.objectives import OBJECTIVES
from presim.planner.search_request import SearchRequest
from presim.planner.strategy.search_loop import PointEvaluator, Progress
from presim.planner.study import Answer, FrameworkPlan, FrameworkPlans, front_of, overlapping, ranked
from presim.planner.trials.trial import Trial
from presim.planner.trials.trial_messages import Reply, Subject
from presim.planner.trials.worker_pool import Workers, cores
from presim.system.interrupts import caught


def with_framework(
    request: SearchRequest, answer: Answer, progress: Progress, deadline_s: float | None = None
) -> Answer:
    """The answer with its best composed plans priced from a framework's captures, ranked before all others.

    ``deadline_s``: of the monotonic clock; plans that it does not reach stay composed.

    Raises:
        InputError: the framework takes or answers none of the plans.
    """
    assert request.trainer is not None
    to_capture = choose(request, answer)
    if not to_capture.plans and not to_capture.refused:
        return answer
    job = Subject(trainer=request.trainer, options=dict(request.options))
    replies: dict[int, Reply] = {}
    with caught() as stop, Workers(job, min(request.jobs or cores(), cores())) as workers:
        for number, reply in replies_of(to_capture.plans, workers, progress, deadline_s):
            replies[number] = reply
    stop.unless(replies)
    return merged(request, answer, to_capture, replies)


def replies_of(
    plans: Sequence[PlanBlocks], workers: PointEvaluator, progress: Progress, deadline_s: float | None = None
) -> Iterator[tuple[int, Reply]]:
    """Yield (number of the trial, reply); plans that share captures wait until the first of them has captured."""
    first_plans: dict[tuple[Path, ...], PlanBlocks] = {}
    for plan in plans:
        first_plans.setdefault(plan.blocks, plan)
    firsts = list(first_plans.values())
    later = [plan for plan in plans if first_plans[plan.blocks] is not plan]
    started_s = time.monotonic()
    missing = {block for plan in firsts for block in plan.missing}
    captured: set[Path] = set()
    progress(f"{_count(len(missing), 'block')} to capture for {_count(len(plans), 'plan')}")
    for index, reply in workers.evaluate([plan.trial.point for plan in firsts], deadline_s):
        captured |= firsts[index].missing
        progress(_state(len(captured), len(missing), time.monotonic() - started_s))
        yield firsts[index].trial.number, reply
    for index, reply in workers.evaluate([plan.trial.point for plan in later], deadline_s):
        yield later[index].trial.number, reply


def _state(captured: int, total: int, elapsed_s: float) -> str:
    """What is done, and how long the rest takes if it goes on like that."""
    if not 0 < captured < total:
        return f"{captured} of {_count(total, 'block')} captured"
    remaining_s = elapsed_s / captured * (total - captured)
    duration = f"{remaining_s:.0f} s" if remaining_s < 100 else _count(round(remaining_s / 60), "minute")
    return f"{captured} of {_count(total, 'block')} captured, about {duration} to go"


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'s' if number != 1 else ''}"


def merged(request: SearchRequest, answer: Answer, to_capture: PlansToCapture, replies: Mapping[int, Reply]) -> Answer:
    """The answer with the framework's figures in place of the composed ones.

    Raises:
        InputError: no plan has such figures.
    """
    assert request.trainer is not None
    words = {number: reply.words for number, reply in replies.items() if reply.figures is None}
    words |= to_capture.refused
    if words and len(words) == len(to_capture.refused) + len(to_capture.plans):
        raise InputError(
            f"--framework {request.trainer.framework} answers for none of the best plans, {len(words)} in all; "
            f"{next(iter(words.values()))}"
        )
    trials = [_answered(trial, replies.get(trial.number), words.get(trial.number)) for trial in answer.trials]
    answered = [trial for trial in trials if trial.figures is not None and trial.figures.source == "framework"]
    objective = OBJECTIVES[answer.objectives[0]]
    best = ranked(answered, objective, request.work, request.constraints)
    figures = [trial.figures for trial in best[:2] if trial.figures is not None]
    behind = [number for number in answer.best if number not in replies and number not in words]
    objectives = [OBJECTIVES[name] for name in answer.objectives]
    several = front_of(best, objectives, request.work) if len(objectives) > 1 else best[:1]
    framework = FrameworkPlans(
        framework=request.trainer.framework,
        blocks=len({block for plan in to_capture.plans for block in plan.blocks}),
        plans=[_line(plan.trial, replies.get(plan.trial.number)) for plan in to_capture.plans],
        order=[trial.number for trial in best],
        regret=_regret(request, answer, best),
    )
    return msgspec.structs.replace(
        answer,
        trials=trials,
        best=[*framework.order, *behind],
        front=[trial.number for trial in several],
        undecided=[trial.number for trial in overlapping(best, objective, request.work)],
        loses=loses_on(figures[0], figures[1], objective.name) if len(figures) == 2 else {},
        from_framework=framework,
        partial=answer.partial or len(replies) < len(to_capture.plans),
        notes=[*answer.notes, *_notes(answer, to_capture, framework, len(behind))],
    )


def _answered(trial: Trial, reply: Reply | None, words: str | None) -> Trial:
    """The trial with the framework's figures, or with its words where it has none."""
    if words is not None:
        return msgspec.structs.replace(trial, fate="failed", figures=None, words=words)
    return trial if reply is None else msgspec.structs.replace(trial, figures=reply.figures, fate=reply.fate)


def _line(trial: Trial, reply: Reply | None) -> FrameworkPlan:
    assert trial.figures is not None
    words = "the search ended before" if reply is None else reply.words
    return FrameworkPlan(number=trial.number, composed_s=trial.figures.step_time_s, words=words)


def _regret(request: SearchRequest, answer: Answer, best: Sequence[Trial]) -> float | None:
    """Loss of the first composed plan against the best one; None if the framework has no figures of that plan."""
    objective = OBJECTIVES[answer.objectives[0]]
    losses = {trial.number: abs(objective.loss(trial.figures, request.work)) for trial in best if trial.figures}
    if not answer.best or answer.best[0] not in losses:
        return None
    composed_first, first = losses[answer.best[0]], losses[best[0].number]
    return (first / composed_first if objective.larger else composed_first / first) - 1


def _notes(answer: Answer, to_capture: PlansToCapture, framework: FrameworkPlans, behind: int) -> list[str]:
    answered = sum(not plan.words for plan in framework.plans)
    blocks = _count(framework.blocks, "block")
    notes = [f"{_count(answered, 'plan')} of {len(framework.plans)} priced from {blocks} of {framework.framework}."]
    if behind:
        notes.append(f"Composed times only say what to capture; plans ranked behind by them: {behind:,}.")
    misfits = sum(plan.trial.number not in answer.best for plan in to_capture.plans)
    if misfits:
        notes.append(f"Of those captured, {_count(misfits, 'plan')} would not fit as composed.")
    if framework.regret is not None:
        label = answer.objectives[0].replace("_", " ")
        notes.append(f"Choosing by composed times would have lost {framework.regret:.1%} of {label}.")
    return notes
