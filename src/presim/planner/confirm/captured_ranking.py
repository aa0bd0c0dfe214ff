"""Rank plans by captured results, and report what choosing by composed results would have cost."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from presim.planner.answer.why import loses_on
from presim.planner.confirm.capture import capture, check_command
from presim.planner.objectives import OBJECTIVES, Objective
from presim.planner.search_request import SearchRequest
from presim.planner.strategy.search_loop import NoStore, TrialStore
from presim.planner.study import Answer, CapturedRanking, CapturedTrial, overlapping, ranked
from presim.planner.trials.trial import Figures, Trial, key
from presim.planner.trials.trial_messages import Reply
from presim.system.files.scratch import temporary_folder
from presim.system.interrupts import caught

Capture = Callable[[SearchRequest, Trial, Path], tuple[str, Reply]]


def confirm(
    request: SearchRequest,
    answer: Answer,
    progress: Callable[[str], None] = lambda text: None,
    run_capture: Capture = capture,
    store: TrialStore | None = None,
) -> Answer:
    """The answer with its best plans captured one after the other and re-ranked; captures are stored in ``store``.

    Raises:
        InputError: the command names a knob that the plans do not have, or files cannot be written.
    """
    best_trials = [answer.trial(number) for number in answer.best[: request.confirm]]
    if request.confirm_command and best_trials:
        check_command(request.confirm_command, best_trials[0].point)
    captures, store = [], NoStore() if store is None else store
    with caught() as stop, temporary_folder("confirm") as folder:
        for position, trial in enumerate(best_trials, 1):
            progress(f"capturing {position} of {len(best_trials)}")
            name = _name(request, trial)
            confirmed = store.captured(name)
            if confirmed is None:
                framework, reply = run_capture(request, trial, Path(folder, str(trial.number)))
                tokens = _with_tokens(reply.figures, trial)
                confirmed = CapturedTrial(number=trial.number, framework=framework, figures=tokens, words=reply.words)
                if confirmed.figures is not None:  # failed captures are not stored, so the next run tries again
                    store.add_captured(name, confirmed)
            captures.append(msgspec.structs.replace(confirmed, number=trial.number))
    return msgspec.structs.replace(_rerank(request, answer, captures), partial=answer.partial or stop.is_partial)


def _name(request: SearchRequest, trial: Trial) -> str:
    """Storage key of a plan's capture: everything it depends on besides the study."""
    parts = [key(trial.point), request.framework, *request.confirm_command]
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:32]


def _with_tokens(figures: Figures | None, trial: Trial) -> Figures | None:
    """Figures with the composed plan's tokens per step if the capture did not count tokens."""
    if figures is None or figures.tokens_per_step is not None or trial.figures is None:
        return figures
    return msgspec.structs.replace(figures, tokens_per_step=trial.figures.tokens_per_step)


def _rerank(request: SearchRequest, answer: Answer, captures: Sequence[CapturedTrial]) -> Answer:
    objective = OBJECTIVES[answer.objectives[0]]
    as_trials = [
        msgspec.structs.replace(answer.trial(capture.number), figures=capture.figures)
        for capture in captures
        if capture.figures
    ]
    best = ranked(as_trials, objective, request.work, request.constraints)
    order = [trial.number for trial in best]
    losses = {trial.number: _value(trial, objective, request) for trial in as_trials}
    regret = None
    if order and captures and captures[0].number in order:
        was, now = losses[captures[0].number], losses[order[0]]
        regret = (now / was if objective.larger else was / now) - 1
    confirmation = CapturedRanking(trials=list(captures), order=order, regret=regret)
    uncaptured = [number for number in answer.best if number not in {capture.number for capture in captures}]
    failed_numbers = [capture.number for capture in captures if capture.number not in order]
    changed: dict[str, Any] = {}
    if order:
        changed["best"] = [*order, *uncaptured, *failed_numbers]
        changed["undecided"] = [trial.number for trial in overlapping(best, objective, request.work)]
        figures = [trial.figures for trial in best[:2] if trial.figures is not None]
        changed["loses"] = loses_on(figures[0], figures[1], objective.name) if len(figures) == 2 else {}
    return msgspec.structs.replace(
        answer,
        **changed,
        confirmation=confirmation,
        notes=[*answer.notes, *_notes(answer, confirmation)],
    )


def _value(trial: Trial, objective: Objective, request: SearchRequest) -> float:
    assert trial.figures is not None
    return abs(objective.loss(trial.figures, request.work))


def _notes(answer: Answer, confirmation: CapturedRanking) -> list[str]:
    before = [capture.number for capture in confirmation.trials if capture.number in confirmation.order]
    after = confirmation.order
    notes = []
    if not after:
        return [f"No plan could be captured: the ranking is by {answer.uncaptured_name} plans."]
    if before == after:
        notes.append(f"The {len(after)} best plans keep their order when captured.")
    else:
        moves = ", ".join(
            f"{before.index(number) + 1} to {after.index(number) + 1}"
            for number in before
            if _moved(number, before, after)
        )
        notes.append(f"Captures change the order: {moves}.")
    method = "Extending" if answer.uncaptured_name == "extended" else "Composing"
    if confirmation.regret is None:
        notes.append(
            f"{method} alone would have chosen a plan that could not be captured or does not fit when captured."
        )
    else:
        notes.append(f"{method} alone would have lost {confirmation.regret:.1%} of {_label(answer.objectives[0])}.")
    if failed := [capture for capture in confirmation.trials if capture.number not in after]:
        notes.append(
            f"{len(failed)} could not be captured and are ranked last; the first: {failed[0].words or 'does not fit'}"
        )
    return notes


def _moved(number: int, before: Sequence[int], after: Sequence[int]) -> bool:
    return before.index(number) != after.index(number)


def _label(objective: str) -> str:
    return objective.replace("_", " ")
