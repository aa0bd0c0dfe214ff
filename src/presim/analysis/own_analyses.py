"""Analyses of one interface: presim's own of a whole job, and those that packages register (``presim.analyses``).

An analysis is a function of a `JobView` that returns an `Analysis`, or None where it has nothing to say.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from presim.analysis.notes.shared_links import shared_links
from presim.analysis.rank_figures import straggler_note
from presim.cost.price import PricedTrace
from presim.engine.timeline import Timeline
from presim.errors import InputError
from presim.hardware import Cluster
from presim.result import Rank
from presim.result.analysis import Analysis
from presim.system import plugins

GROUP = "presim.analyses"


@dataclasses.dataclass(frozen=True)
class JobView:
    """A simulated job: its traces, prices, timelines, and figures by rank."""

    ranks: Mapping[int, PricedTrace]  # trace and prices of each simulated rank
    timelines: Mapping[int, Timeline]  # start and end of each entry, by rank
    figures: Sequence[Rank]  # of each simulated rank
    rank: int  # the reported one
    cluster: Cluster
    link_name: Callable[[int], str]  # of a link of a described network


OwnAnalysis: TypeAlias = Callable[[JobView], Analysis | None]


def _shared_links(job: JobView) -> Analysis:
    return Analysis("shared links", notes=shared_links(job.ranks, job.timelines, job.link_name))


def _straggler(job: JobView) -> Analysis:
    return Analysis("straggler", notes=straggler_note(job.figures))


BUILT_IN: Mapping[str, OwnAnalysis] = {"shared links": _shared_links, "straggler": _straggler}


def analyse(job: JobView, names: Sequence[str]) -> dict[str, Analysis]:
    """Answers of presim's own analyses by name."""
    answers = {name: BUILT_IN[name](job) for name in names}
    return {name: answer for name, answer in answers.items() if answer is not None}


def analyse_by_plugins(job: JobView) -> list[Analysis]:
    """Answers of the registered analyses, in the order of their names.

    Raises:
        InputError: one of them fails, or returns what is no analysis.
    """
    answers: list[Analysis] = []
    for name, analysis in plugins.factories(GROUP).items():
        try:
            answer = analysis(job)
        except Exception as error:  # whatever a package raises, its user should learn which one
            raise InputError(f"the analysis {name!r} of a package failed: {type(error).__name__}: {error}") from error
        if answer is not None:
            answers.append(_checked(name, answer))
    return answers


def _checked(name: str, answer: object) -> Analysis:
    if not isinstance(answer, Analysis):
        raise InputError(f"the analysis {name!r} returned {type(answer).__name__}; it returns an Analysis or None")
    if any(len(row) != len(answer.columns) for row in answer.rows):
        raise InputError(f"the analysis {name!r} has {len(answer.columns)} columns and a row of another length")
    if wrong := [figure.name for figure in answer.figures if not math.isfinite(figure.value)]:
        raise InputError(f"the analysis {name!r} gives no finite number for {wrong[0]!r}; leave out what is not known")
    return answer
