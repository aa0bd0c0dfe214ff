"""The answer of a search: all trials, the best ones, and notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from presim.errors import InputError
from presim.planner.objectives import Constraints, Objective, Work
from presim.planner.trials.trial import Figures, Point, Trial, Value, key
from presim.system.files import FormatError, decode_json
from presim.system.files.field_bounds import Count, Real, Seconds, Version
from presim.system.files.field_docs import doc
from presim.units import seconds

SCHEMA_VERSION = 1


class CapturedTrial(msgspec.Struct, frozen=True, kw_only=True):
    """The capture of one of the best composed plans."""

    number: Annotated[Count, doc("The trial's.")]
    framework: Annotated[
        str, doc("Framework that ran it; command: the user's command; empty: no framework can express it.")
    ]
    figures: Annotated[Figures | None, doc("Figures of the capture; null if there is none.")] = None
    words: Annotated[str, doc("Why there are no figures.")] = ""


class CapturedRanking(msgspec.Struct, frozen=True, kw_only=True):
    """Ranking of the best composed plans by their captures."""

    trials: Annotated[list[CapturedTrial], doc("Captures, in the order of composed plans.")]
    order: Annotated[list[Count], doc("Numbers of the captured, feasible trials, best first.")]
    regret: Annotated[
        Real | None, doc("Loss of the best composed plan against the best captured plan, as a share of the objective.")
    ] = None


class FrameworkPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One of the composed plans that a framework was captured for; its trial has the framework's figures."""

    number: Annotated[Count, doc("The trial's.")]
    composed_s: Annotated[Seconds, doc("Composed step time, s.")]
    words: Annotated[str, doc("Why the framework has no figures.")] = ""


class FrameworkPlans(msgspec.Struct, frozen=True, kw_only=True):
    """Plans priced from captures of a framework's own trainer, which are extended to all layers and micro-batches."""

    framework: Annotated[str, doc("As `presim compose --framework` names it.")]
    blocks: Annotated[Count, doc("Distinct captures that the plans are extended from.")]
    plans: Annotated[list[FrameworkPlan], doc("Plans, in the order in which they were chosen by composing.")]
    order: Annotated[list[Count], doc("Numbers of the feasible ones, best first.")]
    regret: Annotated[
        Real | None, doc("Loss of the best composed plan against the framework's best, as a share of the objective.")
    ] = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `presim search`."""

    schema_version: Annotated[Version, doc("Version of this schema.")] = SCHEMA_VERSION
    subject: Annotated[str, doc("The model, or the command with its placeholders.")]
    objectives: Annotated[list[str], doc("Objectives; several give a Pareto front.")]
    strategy: Annotated[str, doc("exhaustive, or the sampler's name.")]
    varied: Annotated[dict[str, list[Value]], doc("Knobs that vary, with their values.")]
    fixed: Annotated[dict[str, Value], doc("Knobs with one value.")]
    complete: Annotated[bool, doc("Whether every point of the space has a fate; false if the budget ended first.")]
    partial: Annotated[bool, doc("Whether a signal or the budget ended the search before it was done.")] = False
    trials: Annotated[
        list[Trial], doc("Every plan with its fate, and an illegal point for each value that no plan has.")
    ]
    best: Annotated[list[Count], doc("Numbers of the feasible trials, best first by the first objective.")]
    front: Annotated[list[Count], doc("Numbers of the trials on the Pareto front.")]
    undecided: Annotated[
        list[Count], doc("Numbers of the trials whose interval overlaps with the best trial's, including the best.")
    ]
    importance: Annotated[dict[str, Real], doc("Share of the variance of the first objective that each knob explains.")]
    loses: Annotated[
        dict[str, Real], doc("Difference between the second-best and the best trial for each part of the step, s.")
    ] = {}
    confirmation: Annotated[CapturedRanking | None, doc("Captures of the best plans; null without --confirm.")] = None
    from_framework: Annotated[
        FrameworkPlans | None, doc("Plans priced from a framework's captures; null without --framework.")
    ] = None
    notes: Annotated[list[str], doc("Notes on the search, as sentences.")] = []
    knob_order: Annotated[
        list[str], doc("Names of the knobs that vary, in the order of the search; files sort their keys.")
    ] = []
    points: Annotated[Count, doc("Points of the space, legal or not; 0 in files of earlier versions.")] = 0
    work: Annotated[Work, doc("Training tokens and GPU prices, where they were given.")] = Work()
    kind: Annotated[str, doc("Kind of the result.")] = "search"

    def __post_init__(self) -> None:
        """Bring what a file sorts by its keys into order: knobs as searched, shares and seconds largest first."""
        if set(self.knob_order) == set(self.varied):
            varied = {name: self.varied[name] for name in self.knob_order}
            msgspec.structs.force_setattr(self, "varied", varied)
        for field in ("importance", "loses"):
            values: dict[str, float] = getattr(self, field)
            in_order = dict(sorted(values.items(), key=lambda item: (-item[1], item[0])))
            msgspec.structs.force_setattr(self, field, in_order)

    @property
    def hardware(self) -> str:
        """Number and kinds of GPUs of the priced plans, as ``8 to 16 x h100-sxm``; empty if none was priced."""
        priced = [trial.figures for trial in self.trials if trial.figures is not None]
        counts = sorted({figures.gpus for figures in priced})
        kinds = dict.fromkeys(kind for figures in priced for kind in figures.gpus_by_kind or (figures.gpu,) if kind)
        if not counts or not kinds:
            return ""
        numbers = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
        return f"{numbers} x {', '.join(kinds)}"

    def trial(self, number: int) -> Trial:
        """A trial by its number."""
        return next(trial for trial in self.trials if trial.number == number)

    @property
    def uncaptured_name(self) -> str:
        """How plans that were not captured were answered: composed, or extended from captures of a command."""
        sources = {trial.figures.source for trial in self.trials if trial.figures is not None}
        return "extended" if "extended" in sources else "composed"

    @property
    def best_point(self) -> Point | None:
        """The knobs of the best plan; None if no plan is feasible."""
        return self.trial(self.best[0]).point if self.best else None

    def __repr__(self) -> str:
        plans = f"{len(self.best)} of {len(self.trials)} plans are feasible"
        if not self.best:
            return f"<Answer {self.subject}: {plans}>"
        best = self.trial(self.best[0])
        step = f", step {seconds(best.figures.step_time_s)}" if best.figures is not None else ""
        knobs = key({name: value for name, value in best.point.items() if name in self.varied})
        return f"<Answer {self.subject}: {plans}; the best: {knobs}{step}>"


def ranked(trials: Sequence[Trial], objective: Objective, work: Work, constraints: Constraints) -> list[Trial]:
    """Feasible trials, best first; ties go to more spare memory, then to the lower number."""
    feasible = [trial for trial in trials if trial.figures is not None and not constraints.broken(trial, work)]

    def order(trial: Trial) -> tuple[float, int, int]:
        assert trial.figures is not None
        return objective.loss(trial.figures, work), -trial.figures.headroom_bytes, trial.number

    return sorted(feasible, key=order)


def front_of(trials: Sequence[Trial], objectives: Sequence[Objective], work: Work) -> list[Trial]:
    """The Pareto front: trials that no other trial dominates."""
    losses = [[objective.loss(figures, work) for objective in objectives] for figures in map(_figures, trials)]

    def dominated(loss: list[float]) -> bool:
        return any(
            other != loss and all(other_value <= value for other_value, value in zip(other, loss)) for other in losses
        )

    return [trial for trial, loss in zip(trials, losses) if not dominated(loss)]


def overlapping(best_first: Sequence[Trial], objective: Objective, work: Work) -> list[Trial]:
    """Trials whose 80 % interval overlaps with the best trial's."""
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
        InputError: the data is not an answer of a search.
    """
    try:
        return decode_json(data, Answer)
    except FormatError as error:
        raise InputError(f"{name} is not an answer of `presim search` ({error}); write one with --json") from error
