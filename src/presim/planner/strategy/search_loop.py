"""The exhaustive search loop: worker processes evaluate points in rounds until all have a fate or the budget ends.

Legal plans of a model are generated (`legal`); the ledger has an illegal point only for values that no legal plan has.

The size of a round does not depend on the number of workers, and pruning is decided only between rounds. The ledger
therefore does not depend on which process was faster.
"""

from __future__ import annotations

import itertools
import operator
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from presim.composition.stage_split import count_blocks
from presim.errors import InputError
from presim.planner.knobs import to_plan_fields
from presim.planner.search_options import LARGE, too_many
from presim.planner.search_request import SearchRequest
from presim.planner.strategy.legal import equivalent, illegal_reason, illegal_values, legal_points
from presim.planner.study import CapturedTrial, ranked
from presim.planner.trials.point_evaluator import PlanEvaluator
from presim.planner.trials.trial import Point, Trial, key
from presim.planner.trials.trial_messages import Reply, Subject

ROUND = 8
Progress = Callable[[str], None]


class PointEvaluator(Protocol):
    """Worker processes that evaluate points, local or remote."""

    def evaluate(self, points: Sequence[Point], deadline_s: float | None = None) -> Iterator[tuple[int, Reply]]:
        """Yield (index of the point, reply) as replies arrive, until the monotonic clock reads ``deadline_s``."""
        ...


class TrialStore(Protocol):
    """Stores finished trials between runs."""

    def find(self, point: Point) -> Trial | None:
        """The stored trial of a point; None if there is none."""
        ...

    def add(self, trial: Trial) -> None:
        """Store a finished trial."""
        ...

    def captured(self, name: str) -> CapturedTrial | None:
        """A stored capture of a plan; None if there is none."""
        ...

    def add_captured(self, name: str, capture: CapturedTrial) -> None:
        """Keep a capture."""
        ...


class NoStore:
    """Stores nothing."""

    def find(self, point: Point) -> Trial | None:
        """None."""
        return None

    def add(self, trial: Trial) -> None:
        """Forget it."""

    def captured(self, name: str) -> CapturedTrial | None:
        """None."""
        return None

    def add_captured(self, name: str, capture: CapturedTrial) -> None:
        """Forget it."""


class Pruner(Protocol):
    """Decides which points need not be evaluated."""

    def order(self, points: Sequence[tuple[int, Point]]) -> list[tuple[int, Point]]:
        """The points in the order that lets most be pruned."""
        ...

    def record(self, trial: Trial) -> None:
        """Learn a trial."""
        ...

    def waits_for(self, point: Point) -> list[Point]:
        """Points that should be evaluated first, because their results may prune this one."""
        ...

    def pruned(self, number: int, point: Point) -> Trial | None:
        """The trial of a point that cannot be the best, with rule and witness; None if it must be evaluated."""
        ...


class EvaluationRounds:
    """Evaluates rounds of points within a time budget and stores finished trials."""

    def __init__(self, request: SearchRequest, workers: PointEvaluator, store: TrialStore, progress: Progress) -> None:
        self._request, self._workers, self._kept, self._progress = request, workers, store, progress
        self._evaluator = PlanEvaluator(Subject(graph=request.graph, options=dict(request.options)))
        self._blocks = count_blocks(self._evaluator.graph()) if request.graph else 0
        self.deadline_s = None if request.budget_s is None else time.monotonic() + request.budget_s
        self.trials: dict[str, Trial] = {}

    @property
    def over(self) -> bool:
        """Whether the time budget is spent."""
        return self.deadline_s is not None and time.monotonic() >= self.deadline_s

    def say(self, activity: str) -> None:
        """Show what the search does."""
        self._progress(activity)

    def candidates(self) -> tuple[list[tuple[int, Point]], list[Trial]]:
        """The numbered points to evaluate, and trials of points that need no evaluation: illegal or stored ones.

        Raises:
            InputError: the space has more legal plans than can be listed.
        """
        space = self._request.space
        if not self._is_plain:
            numbered = list(enumerate(space))
            screened = [self.screened(number, point) for number, point in numbered]
            waiting = [pair for pair, trial in zip(numbered, screened) if trial is None]
            return waiting, [trial for trial in screened if trial is not None]
        legal = list(itertools.islice(legal_points(space, self._evaluator.cluster, self._blocks), LARGE + 1))
        if len(legal) > LARGE:
            raise InputError(too_many("more legal plans"))
        trials = [
            Trial(number=space.number(point), point=point, fate="illegal", words=words)
            for point, words in illegal_values(space, self._evaluator.cluster, self._blocks, legal)
        ]
        waiting = []
        for number, point in sorted(((space.number(point), point) for point in legal), key=operator.itemgetter(0)):
            stored = self._kept.find(point)
            if stored is None:
                waiting.append((number, point))
            else:
                trials.append(_numbered(stored, number))
        return waiting, trials

    def representative(self, point: Point) -> Point:
        """The first of the plans that are equivalent to a point."""
        if not self._is_plain:
            return point
        return equivalent(point, self._request.space.varied, self._evaluator.cluster(point))

    @property
    def _is_plain(self) -> bool:
        """Whether points are fields of plans."""
        return not (self._request.command or self._request.rules or self._request.plan_fields)

    def screened(self, number: int, point: Point) -> Trial | None:
        """The trial of a point that needs no evaluation: it is illegal or already stored."""
        words = next(filter(None, (rule.broken(point) for rule in self._request.rules)), "")
        if not words and not self._request.command:
            words = illegal_reason(
                to_plan_fields(point, self._request.plan_fields), self._evaluator.cluster(point), self._blocks
            )
        if words:
            return Trial(number=number, point=point, fate="illegal", words=words)
        stored = self._kept.find(point)
        return None if stored is None else _numbered(stored, number)

    def run(self, round_: Sequence[tuple[int, Point]]) -> list[Trial]:
        """Evaluate a round; points that the budget does not reach stay open."""
        trial_by_index: dict[int, Trial] = {}
        for index, reply in self._workers.evaluate([point for _, point in round_], self.deadline_s):
            number, point = round_[index]
            trial_by_index[index] = self._finished(number, point, reply)
        return [
            trial_by_index.get(index) or Trial(number=number, point=point, fate="open")
            for index, (number, point) in enumerate(round_)
        ]

    def _finished(self, number: int, point: Point, reply: Reply) -> Trial:
        trial = Trial(
            number=number, point=point, fate=reply.fate, figures=reply.figures, rule=reply.rule, words=reply.words
        )
        self._kept.add(trial)
        self.trials[key(point)] = trial
        self._progress(self._state())
        return trial

    def _state(self) -> str:
        request, trials = self._request, list(self.trials.values())
        best = ranked(trials, request.objectives[0], request.work, request.constraints)[:1]
        shown = ""
        if best and best[0].figures is not None:
            objective = request.objectives[0]
            value = objective.of(best[0].figures, request.work)
            shown = "" if value is None else f", best {objective.format(value)}"
        count = f"{len(trials)} simulated" if self._is_plain else f"{len(trials)} of {len(request.space)} evaluated"
        return f"{count}{shown}"


def _numbered(trial: Trial, number: int) -> Trial:
    import msgspec

    return msgspec.structs.replace(trial, number=number)


def evaluate_all_points(request: SearchRequest, evaluation: EvaluationRounds, pruner: Pruner) -> list[Trial]:
    """Trials of all points of the space, in the order of the space."""
    waiting, screened = evaluation.candidates()
    trials = {trial.number: trial for trial in screened}
    for trial in screened:
        pruner.record(trial)
    evaluation.say(f"bounding {len(waiting):,} plans")
    waiting = pruner.order(waiting)
    while waiting:
        round_, decided, waiting = _next_round(waiting, pruner)
        trials |= {trial.number: trial for trial in decided}
        if evaluation.over:
            round_trials = [Trial(number=number, point=point, fate="open") for number, point in round_]
        else:
            round_trials = evaluation.run(round_)
        for trial in round_trials:
            trials[trial.number] = trial
            pruner.record(trial)
    return [_explained_at_last(trials[number], pruner) for number in sorted(trials)]


def _explained_at_last(trial: Trial, pruner: Pruner) -> Trial:
    """A pruned trial as all results explain it: a search that goes on from them has the same ledger."""
    if trial.fate != "pruned" or trial.figures is not None:  # evaluating it ruled it out
        return trial
    return pruner.pruned(trial.number, trial.point) or trial


def interrupted_trials(request: SearchRequest, evaluation: EvaluationRounds) -> list[Trial]:
    """Trials of a search that was interrupted: those that are finished, and the points of the space without a fate."""
    if request.strategy != "exhaustive":
        return sorted(evaluation.trials.values(), key=lambda trial: trial.number)
    waiting, screened = evaluation.candidates()
    unfinished = [
        evaluation.trials.get(key(point)) or Trial(number=number, point=point, fate="open") for number, point in waiting
    ]
    return sorted((*screened, *unfinished), key=lambda trial: trial.number)


def _next_round(
    waiting: Sequence[tuple[int, Point]], pruner: Pruner
) -> tuple[list[tuple[int, Point]], list[Trial], list[tuple[int, Point]]]:
    """The points to evaluate next, the trials decided by rules, and the remaining points."""
    round_: list[tuple[int, Point]] = []
    decided: list[Trial] = []
    later: list[tuple[int, Point]] = []
    round_keys: set[str] = set()
    for index, (number, point) in enumerate(waiting):
        if len(round_) == ROUND:
            later += waiting[index:]
            break
        pruned = pruner.pruned(number, point)
        if pruned is not None:
            decided.append(pruned)
        elif any(key(other) in round_keys for other in pruner.waits_for(point)):
            later.append((number, point))
        else:
            round_.append((number, point))
            round_keys.add(key(point))
    return round_, decided, later
