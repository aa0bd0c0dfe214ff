"""Choose the plans to capture from a framework: the best composed ones, and the fastest that nearly fit."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from presim.errors import InputError
from presim.planner.knobs import plan_of
from presim.planner.objectives import OBJECTIVES
from presim.planner.search_request import SearchRequest
from presim.planner.study import Answer
from presim.planner.trials.point_evaluator import evaluation_options, plan
from presim.planner.trials.trial import Trial
from presim.verbs.compose_framework import blocks_of, is_captured

MISFITS = 4  # of so many plans to capture, one may lack memory as composed: eager layers keep more than fused ones


@dataclasses.dataclass(frozen=True)
class PlanBlocks:
    """A plan with the folders of the captures that it is extended from."""

    trial: Trial
    blocks: tuple[Path, ...]
    missing: frozenset[Path]  # those that are not kept of an earlier call


@dataclasses.dataclass(frozen=True)
class PlansToCapture:
    """Plans that a framework takes, and why it refuses others that are better."""

    plans: Sequence[PlanBlocks]
    refused: Mapping[int, str]  # number of the trial -> the reason


def choose(request: SearchRequest, answer: Answer) -> PlansToCapture:
    """The plans to capture, the best composed first; as many as the request allows."""
    refused: dict[int, str] = {}
    fitting = _taken(request, map(answer.trial, answer.best), refused)
    misfitting = _taken(request, _near_misfits(request, answer), refused)
    count = request.framework_plans
    misfits = list(itertools.islice(misfitting, count // MISFITS))
    return PlansToCapture([*itertools.islice(fitting, count - len(misfits)), *misfits], refused)


def _near_misfits(request: SearchRequest, answer: Answer) -> list[Trial]:
    """Plans that composing finds faster than all that fit, and too large; the least lack first."""
    objective = OBJECTIVES[answer.objectives[0]]
    best = answer.trial(answer.best[0]).figures if answer.best else None
    limit = objective.loss(best, request.work) if best is not None else float("inf")
    misfits = [
        (-figures.headroom_bytes, trial.number, trial)
        for trial in answer.trials
        if (figures := trial.figures) is not None
        and trial.fate == "priced"
        and figures.headroom_bytes < 0
        and objective.loss(figures, request.work) < limit
    ]
    return [trial for _, _, trial in sorted(misfits, key=lambda misfit: misfit[:2])]


def _taken(request: SearchRequest, trials: Iterable[Trial], refused: dict[int, str]) -> Iterator[PlanBlocks]:
    """Plans that the framework takes; the reasons against others are added to ``refused``."""
    assert request.trainer is not None
    trainer = request.trainer
    for trial in trials:
        try:
            blocks = blocks_of(
                trainer.model,
                plan(trial.point),
                plan_of(trial.point),
                evaluation_options(request.options, trial.point),
                framework=trainer.framework,
                precision=trainer.precision,
                overrides=trainer.overrides,
            )
        except InputError as error:
            refused[trial.number] = str(error)
            continue
        yield PlanBlocks(trial, blocks, frozenset(block for block in blocks if not is_captured(block)))
