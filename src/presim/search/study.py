"""The answer of a search: all trials, the best of them, and what the reader should know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from presim.errors import InputError
from presim.field_docs import doc
from presim.search.objectives import Constraints, Objective, Work
from presim.search.trials.trial import Figures, Point, Trial, Value

SCHEMA_VERSION = 1


class Confirmed(msgspec.Struct, frozen=True, kw_only=True):
    """One of the best composed plans, captured."""

    number: Annotated[int, doc("The trial's.")]
    framework: Annotated[str, doc("Which ran it; command: the user's own; empty: none can express it.")]
    figures: Annotated[Figures | None, doc("What the capture came to; null where there is none.")] = None
    words: Annotated[str, doc("Why there is none.")] = ""


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """How captures of the best composed plans rank them."""

    trials: Annotated[list[Confirmed], doc("In the order of composed plans.")]
    order: Annotated[list[int], doc("Numbers of those that were captured and are feasible, best first.")]
    regret: Annotated[
        float | None, doc("What the first composed plan loses to the best captured one, as a share of the objective.")
    ] = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What `presim search` found."""

    schema_version: Annotated[int, doc("Version of this schema.")] = SCHEMA_VERSION
    subject: Annotated[str, doc("The model, or the command with its placeholders.")]
    objectives: Annotated[list[str], doc("What was to be best; several give a Pareto front.")]
    strategy: Annotated[str, doc("exhaustive, or the sampler's name.")]
    varied: Annotated[dict[str, list[Value]], doc("Knobs that vary, with their values.")]
    fixed: Annotated[dict[str, Value], doc("Knobs with one value.")]
    complete: Annotated[bool, doc("Whether every point of the space has a fate; false: a budget ended before.")]
    trials: Annotated[list[Trial], doc("The ledger: every point and its fate.")]
    best: Annotated[list[int], doc("Numbers of the feasible trials, best first by the first objective.")]
    front: Annotated[list[int], doc("Numbers of the trials that no other is better than in all objectives.")]
    undecided: Annotated[list[int], doc("Those whose intervals overlap with the best one's, itself included.")]
    importance: Annotated[dict[str, float], doc("Share of the spread of the first objective that each knob explains.")]
    loses: Annotated[
        dict[str, float], doc("What the second loses on: parts of its step beside the best one's, s.")
    ] = {}
    confirmation: Annotated[Confirmation | None, doc("Captures of the best plans; null without --confirm.")] = None
    notes: Annotated[list[str], doc("What a reader should know, as sentences.")] = []

    def trial(self, number: int) -> Trial:
        """A trial by its number."""
        return next(trial for trial in self.trials if trial.number == number)

    @property
    def best_point(self) -> Point | None:
        """The knobs of the best plan; None where none is feasible."""
        return self.trial(self.best[0]).point if self.best else None


def ranked(trials: Sequence[Trial], objective: Objective, work: Work, constraints: Constraints) -> list[Trial]:
    """The feasible trials, best first; of equals the one with more memory to spare, then the lower number."""
    feasible = [trial for trial in trials if trial.figures is not None and not constraints.broken(trial, work)]

    def order(trial: Trial) -> tuple[float, int, int]:
        assert trial.figures is not None
        return objective.loss(trial.figures, work), -trial.figures.headroom_bytes, trial.number

    return sorted(feasible, key=order)


def front_of(trials: Sequence[Trial], objectives: Sequence[Objective], work: Work) -> list[Trial]:
    """Those that no other is at least as good as in all objectives and better in one."""
    losses = [[objective.loss(figures, work) for objective in objectives] for figures in map(_figures, trials)]

    def dominated(mine: list[float]) -> bool:
        return any(other != mine and all(theirs <= own for theirs, own in zip(other, mine)) for other in losses)

    return [trial for trial, mine in zip(trials, losses) if not dominated(mine)]


def overlapping(best_first: Sequence[Trial], objective: Objective, work: Work) -> list[Trial]:
    """Those whose 80 % interval reaches into the best one's."""
    if not best_first:
        return []
    limit = max(_ends(_figures(best_first[0]), objective, work))
    return [trial for trial in best_first if min(_ends(_figures(trial), objective, work)) <= limit]


def _ends(figures: Figures, objective: Objective, work: Work) -> tuple[float, float]:
    low, high = (
        objective.loss(msgspec.structs.replace(figures, step_time_s=time), work)
        for time in (figures.low_s, figures.high_s)
    )
    return low, high


def _figures(trial: Trial) -> Figures:
    assert trial.figures is not None
    return trial.figures


def encode(answer: Answer) -> bytes:
    """The answer as JSON."""
    return msgspec.json.format(msgspec.json.encode(answer, order="sorted"), indent=1) + b"\n"


def decode(data: bytes, name: str) -> Answer:
    """Read an answer back.

    Raises:
        InputError: it is none.
    """
    try:
        return msgspec.json.decode(data, type=Answer)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(f"{name} is no answer of `presim search` ({error}); make one with --json") from error
