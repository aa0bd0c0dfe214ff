"""The search itself: points in rounds, evaluated by worker processes, until each has a fate or the budget ends.

Rounds have a fixed size whatever the number of workers, and what is pruned is decided between rounds only: the ledger
does not depend on which process was faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from presim.compose.stages import blocks
from presim.search.knobs import translated
from presim.search.request import Request
from presim.search.strategy.legal import illegal
from presim.search.study import Confirmed, ranked
from presim.search.trials.evaluator import Evaluator
from presim.search.trials.job import Job, Reply
from presim.search.trials.trial import Point, Trial, key

ROUND = 16
Progress = Callable[[str], None]


class Evaluates(Protocol):
    """Processes that evaluate points, here or elsewhere."""

    def evaluate(self, points: Sequence[Point], ends: float | None = None) -> Iterator[tuple[int, Reply]]:
        """Replies as they come, each with the place of its point, until the monotonic clock reads ``ends``."""
        ...


class Kept(Protocol):
    """Where finished trials are kept between runs."""

    def find(self, point: Point) -> Trial | None:
        """What is known of a point."""
        ...

    def add(self, trial: Trial) -> None:
        """Keep a trial that is finished."""
        ...

    def captured(self, name: str) -> Confirmed | None:
        """An earlier capture of a plan."""
        ...

    def add_captured(self, name: str, one: Confirmed) -> None:
        """Keep a capture."""
        ...


class Nothing:
    """Keeps nothing."""

    def find(self, point: Point) -> Trial | None:
        """None."""
        return None

    def add(self, trial: Trial) -> None:
        """Forget it."""

    def captured(self, name: str) -> Confirmed | None:
        """None."""
        return None

    def add_captured(self, name: str, one: Confirmed) -> None:
        """Forget it."""


class Pruner(Protocol):
    """Decides which points need not be evaluated."""

    def order(self, points: Sequence[tuple[int, Point]]) -> list[tuple[int, Point]]:
        """The order in which most can be pruned."""
        ...

    def told(self, trial: Trial) -> None:
        """Learn a trial."""
        ...

    def waits_for(self, point: Point) -> list[Point]:
        """Points whose outcome may spare this one."""
        ...

    def pruned(self, number: int, point: Point) -> Trial | None:
        """The trial of a point that cannot be best, with rule and witness; None: evaluate it."""
        ...


class Evaluation:
    """Evaluates rounds of points within a budget, and keeps what is finished."""

    def __init__(self, request: Request, workers: Evaluates, kept: Kept, progress: Progress) -> None:
        self._request, self._workers, self._kept, self._progress = request, workers, kept, progress
        self._evaluator = Evaluator(Job(graph=request.graph, options=dict(request.options)))
        self._blocks = blocks(self._evaluator.graph()) if request.graph else 0
        self._ends = None if request.budget_s is None else time.monotonic() + request.budget_s
        self.trials: dict[str, Trial] = {}

    @property
    def over(self) -> bool:
        """Whether the budget is spent."""
        return self._ends is not None and time.monotonic() >= self._ends

    def screened(self, number: int, point: Point) -> Trial | None:
        """A point that needs no evaluation: it is illegal, or known from before."""
        words = next(filter(None, (rule.broken(point) for rule in self._request.rules)), "")
        if not words and not self._request.command:
            words = illegal(translated(point, self._request.meant), self._evaluator.cluster(point), self._blocks)
        if words:
            return Trial(number=number, point=point, fate="illegal", words=words)
        known = self._kept.find(point)
        return None if known is None else _numbered(known, number)

    def run(self, round_: Sequence[tuple[int, Point]]) -> list[Trial]:
        """The trials of a round; those that the budget does not allow stay open."""
        found: dict[int, Trial] = {}
        for place, reply in self._workers.evaluate([point for _, point in round_], self._ends):
            number, point = round_[place]
            found[place] = self._finished(number, point, reply)
        return [
            found.get(place) or Trial(number=number, point=point, fate="open")
            for place, (number, point) in enumerate(round_)
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
            shown = "" if value is None else f", best {objective.said(value)}"
        return f"{len(trials)} of {len(request.space)} evaluated{shown}"


def _numbered(trial: Trial, number: int) -> Trial:
    import msgspec

    return msgspec.structs.replace(trial, number=number)


def exhaustive(request: Request, evaluation: Evaluation, pruner: Pruner) -> list[Trial]:
    """Every point of the space with its fate, in the order of the space."""
    trials: dict[int, Trial] = {}
    waiting: list[tuple[int, Point]] = []
    for number, point in enumerate(request.space):
        screened = evaluation.screened(number, point)
        if screened is None:
            waiting.append((number, point))
        else:
            trials[number] = screened
            pruner.told(screened)
    waiting = pruner.order(waiting)
    while waiting:
        round_, decided, waiting = _next_round(waiting, pruner)
        trials |= {trial.number: trial for trial in decided}
        if evaluation.over:
            found = [Trial(number=number, point=point, fate="open") for number, point in round_]
        else:
            found = evaluation.run(round_)
        for trial in found:
            trials[trial.number] = trial
            pruner.told(trial)
    return [trials[number] for number in sorted(trials)]


def _next_round(
    waiting: Sequence[tuple[int, Point]], pruner: Pruner
) -> tuple[list[tuple[int, Point]], list[Trial], list[tuple[int, Point]]]:
    """The points to evaluate next, those that rules decided, and the others."""
    round_: list[tuple[int, Point]] = []
    decided: list[Trial] = []
    later: list[tuple[int, Point]] = []
    asked: set[str] = set()
    for place, (number, point) in enumerate(waiting):
        if len(round_) == ROUND:
            later += waiting[place:]
            break
        pruned = pruner.pruned(number, point)
        if pruned is not None:
            decided.append(pruned)
        elif any(key(other) in asked for other in pruner.waits_for(point)):
            later.append((number, point))
        else:
            round_.append((number, point))
            asked.add(key(point))
    return round_, decided, later
