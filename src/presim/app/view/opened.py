"""Opens results of any verb for the browser: the report, and panes with charts where a kind has some."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from presim.app.view import result_panes
from presim.errors import InputError
from presim.planner.study import Answer
from presim.planner.trials.trial import Trial
from presim.result import Result
from presim.result.serving import ServingResult
from presim.studies.saved_results.read_result import SavedResult, read
from presim.studies.saved_results.show_result import as_blocks

_MOST_TRIALS = 5000  # that are drawn
Pane = Callable[[], dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Opened:
    """A result and its panes by name; the first is shown first."""

    label: str
    panes: Mapping[str, Pane]


def open_result(path: Path) -> Opened:
    """Read a result of any verb.

    Raises:
        InputError: the file cannot be read, or no verb wrote it.
    """
    return opened(read(path))


def opened(result: SavedResult) -> Opened:
    """The panes of a result that was read."""
    charts = _CHARTS[result.kind.name](result) if result.kind.name in _CHARTS else {}
    report = [msgspec.to_builtins(block) for block in as_blocks(result)]
    return Opened(result.path.name, {**charts, "report": lambda: {"blocks": report}})


def _run(result: SavedResult) -> dict[str, Pane]:
    content: Result = result.content
    return {
        "summary": lambda: result_panes.summary(content, result.path.name),
        "memory": lambda: result_panes.memory(content),
        "communication": lambda: result_panes.communication(content),
    }


def _serving(result: SavedResult) -> dict[str, Pane]:
    content: ServingResult = result.content
    shown = {"slo_statistics": content.slo_statistic_by_metric, "partial": result.partial}
    return {"serving": lambda: {**msgspec.to_builtins(content), **shown}}


def _search(result: SavedResult) -> dict[str, Pane]:
    try:
        content = search_pane(result.content)
    except StopIteration as error:
        raise InputError(f"{result.path} names trials that it lacks; write it again with --json") from error
    return {"search": lambda: content}


def search_pane(answer: Answer) -> dict[str, Any]:
    """Data of a search: its best points, and the positions of all priced points."""
    varied = list(answer.varied)
    fates: dict[str, int] = {}
    for trial in answer.trials:
        fates[trial.fate] = fates.get(trial.fate, 0) + 1
    priced = [trial for trial in answer.trials if trial.figures is not None]
    return {
        "subject": answer.subject,
        "strategy": answer.strategy,
        "complete": answer.complete,
        "varied": varied,
        "fates": fates,
        "best": [_trial(answer.trial(number), varied) for number in answer.best],
        "front": answer.front,
        "importance": answer.importance,
        "notes": answer.notes,
        "points": [_trial(trial, varied) for trial in priced[:_MOST_TRIALS]],
    }


def _trial(trial: Trial, varied: list[str]) -> dict[str, Any]:
    return {
        "number": trial.number,
        "point": {name: trial.point.get(name) for name in varied},
        "figures": msgspec.to_builtins(trial.figures),
    }


_CHARTS: dict[str, Callable[[SavedResult], dict[str, Pane]]] = {"run": _run, "serving": _serving, "search": _search}
