"""Render a search's answer as one self-contained HTML page with SVG charts."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from presim.planner.answer.search_table import size_of
from presim.planner.answer.why import show
from presim.planner.knobs import short
from presim.planner.objectives import OBJECTIVES, Work
from presim.planner.study import Answer
from presim.planner.trials.trial import Trial, Value, format_value
from presim.report.rendering import template
from presim.units import GIB, percent, seconds, seconds_range, three_digits

_PLANE = (720, 320)  # of a chart
_ROWS = 30
_LINES = 400  # of parallel coordinates; more would be unreadable
_GOOD, _BAD = (70, 70, 203), (213, 94, 0)  # colours of the best and the worst, of presim.report.palette


def render(answer: Answer) -> str:
    """The page."""
    return template(Path(__file__).with_name("page.html.jinja")).render(_page_data(answer, answer.work))


def _page_data(answer: Answer, work: Work) -> dict[str, Any]:
    knobs = [name for name in answer.varied if len(answer.varied[name]) > 1]
    best = [answer.trial(number) for number in answer.best]
    counts = collections.Counter(trial.fate for trial in answer.trials)
    return {
        "subject": answer.subject,
        "fixed": ", ".join(f"{short(name)} {format_value(value)}" for name, value in answer.fixed.items()),
        "points": f"{size_of(answer)}, {answer.strategy}",
        "hardware": answer.hardware,
        "partial": "partial: the search ended before all were reached" if answer.partial else "",
        "fates": [(fate, counts[fate]) for fate in ("priced", "pruned", "illegal", "failed", "open") if counts[fate]],
        "knobs": [short(knob) for knob in knobs],
        "rows": [_row(rank, trial, knobs, answer, work) for rank, trial in enumerate(best[:_ROWS], 1)],
        "objectives": [name.replace("_", " ") for name in answer.objectives],
        "undecided": len(answer.undecided),
        "importance": [(short(name), share, percent(share)) for name, share in answer.importance.items()],
        "loses": [(name, f"{'+' if value > 0 else '-'}{seconds(abs(value))}") for name, value in answer.loses.items()],
        "second": show(best[1].point, knobs) if len(best) > 1 else "",
        "captured": _captured_rows(answer, knobs),
        "uncaptured_name": answer.uncaptured_name,
        "scatter": _scatter_plot(answer, work),
        "coordinates": _parallel_coordinates(answer, knobs, work),
        "misfits": _misfits(answer, knobs),
        "reasons": _reasons(answer, knobs),
        "notes": answer.notes,
        "width": _PLANE[0],
        "height": _PLANE[1],
    }


def _row(rank: int, trial: Trial, knobs: Sequence[str], answer: Answer, work: Work) -> dict[str, Any]:
    figures = trial.figures
    assert figures is not None
    further_objectives = [OBJECTIVES[name] for name in answer.objectives if name != "step_time"]
    values = [(objective, objective.of(figures, work)) for objective in further_objectives]
    return {
        "place": rank,
        "front": len(answer.objectives) > 1 and trial.number in answer.front,
        "knobs": [format_value(trial.point[knob]) for knob in knobs],
        "step": seconds(figures.step_time_s),
        "interval": seconds_range(figures.low_s, figures.high_s),
        "mfu": "-" if figures.mfu is None else percent(figures.mfu),
        "memory": three_digits(figures.memory_bytes / GIB),
        "spare": three_digits(figures.headroom_bytes / GIB),
        "exposed": percent(figures.exposed_communication_s / figures.step_time_s),
        "objectives": ["-" if value is None else objective.format(value) for objective, value in values],
    }


def _captured_rows(answer: Answer, knobs: Sequence[str]) -> list[dict[str, str]]:
    """Rows that compare composed (or extended) plans with captured ones, in their order; those without come last."""
    if answer.confirmation is None:
        return []
    capture_by_number = {capture.number: capture for capture in answer.confirmation.trials}
    before = list(capture_by_number)
    rows = []
    for number in [
        *answer.confirmation.order,
        *(number for number in before if number not in answer.confirmation.order),
    ]:
        capture, composed = capture_by_number[number], answer.trial(number).figures
        captured = capture.figures
        is_ranked = number in answer.confirmation.order
        rows.append(
            {
                "place": str(answer.confirmation.order.index(number) + 1) if is_ranked else "-",
                "was": str(before.index(number) + 1),
                "plan": show(answer.trial(number).point, knobs),
                "on": capture.framework or "-",
                "uncaptured": seconds(composed.step_time_s) if composed else "-",
                "captured": seconds(captured.step_time_s) if captured else capture.words,
                "difference": f"{composed.step_time_s / captured.step_time_s - 1:+.1%}"
                if composed and captured
                else "",
                "memory": three_digits(captured.memory_bytes / GIB) if captured else "",
            }
        )
    return rows


def _measure(trial: Trial, answer: Answer, work: Work) -> float | None:
    """The value of the first objective."""
    return None if trial.figures is None else OBJECTIVES[answer.objectives[0]].of(trial.figures, work)


def _scatter_plot(answer: Answer, work: Work) -> dict[str, Any] | None:
    """Scatter plot of memory against the first objective, one dot per priced plan."""
    objective = OBJECTIVES[answer.objectives[0]]
    measured = [(trial, value) for trial in answer.trials if (value := _measure(trial, answer, work)) is not None]
    if len(measured) < 2:
        return None
    used = [trial.figures.memory_bytes for trial, _ in measured if trial.figures is not None]
    capacity = max((t.figures.memory_bytes + t.figures.headroom_bytes for t, _ in measured if t.figures), default=0)
    low, high = min(value for _, value in measured), max(value for _, value in measured)
    top = min(max(*used, capacity), 2 * capacity)  # plans that need more are drawn at the edge
    best, front = set(answer.best[:1]), set(answer.front)
    width, height = _PLANE
    knobs = list(answer.varied)
    dots = [
        {
            "x": f"{(value - low) / ((high - low) or 1) * width:.1f}",
            "y": f"{height - min(size / top, 1) * height:.1f}",
            "kind": _kind(trial, best, front),
            "title": f"{show(trial.point, knobs)}: {objective.format(value)}, {three_digits(size / GIB)} GiB",
        }
        for (trial, value), size in zip(measured, used)
    ]
    return {
        "dots": sorted(dots, key=lambda dot: ("bad", "fits", "front", "best").index(dot["kind"])),
        "capacity_y": f"{height - capacity / top * height:.1f}",
        "capacity": f"{three_digits(capacity / GIB)} GiB",
        "low": objective.format(low),
        "high": objective.format(high),
        "name": objective.name.replace("_", " "),
    }


def _kind(trial: Trial, best: set[int], front: set[int]) -> str:
    if trial.number in best:
        return "best"
    return "front" if trial.number in front else "fits" if trial.fits else "bad"


def _parallel_coordinates(answer: Answer, knobs: Sequence[str], work: Work) -> dict[str, Any] | None:
    """Parallel coordinates: one axis per knob and one for the objective, one line per plan that fits."""
    objective = OBJECTIVES[answer.objectives[0]]
    lines = [answer.trial(number) for number in answer.best[:_LINES]]
    values = [value for trial in lines if (value := _measure(trial, answer, work)) is not None]
    if len(values) < 2 or len(values) != len(lines) or not knobs:
        return None
    width, height = _PLANE
    step = width / len(knobs)
    low, high = min(values), max(values)

    def tick_y(knob: str, value: Value) -> float:
        choices = [format_value(choice) for choice in answer.varied[knob]]
        return height - (choices.index(format_value(value)) + 0.5) / len(choices) * height

    def share(value: float) -> float:
        return (value - low) / ((high - low) or 1)

    drawn = []
    for rank, (trial, value) in enumerate(zip(lines, values)):
        points = [(index * step, tick_y(knob, trial.point[knob])) for index, knob in enumerate(knobs)]
        points.append((width, height - share(value) * height))
        drawn.append(
            {
                "points": " ".join(f"{x:.1f},{y:.1f}" for x, y in points),
                "colour": _colour(rank / max(len(lines) - 1, 1)),
                "wide": rank == 0,
                "title": f"{show(trial.point, knobs)}: {objective.format(value)}",
            }
        )
    axes = [
        {
            "x": f"{index * step:.1f}",
            "name": short(knob),
            "ticks": [(f"{tick_y(knob, value):.1f}", format_value(value)) for value in answer.varied[knob]],
        }
        for index, knob in enumerate(knobs)
    ]
    objective_ticks = [(f"{height:.1f}", objective.format(low)), ("0", objective.format(high))]
    axes.append({"x": f"{width}", "name": objective.name.replace("_", " "), "ticks": objective_ticks})
    return {"lines": drawn[::-1], "axes": axes}


def _colour(share: float) -> str:
    return "rgb({},{},{})".format(*(round(good + (bad - good) * share) for good, bad in zip(_GOOD, _BAD)))


def _misfits(answer: Answer, knobs: Sequence[str]) -> list[tuple[str, str]]:
    lacking = [(-t.figures.headroom_bytes, t) for t in answer.trials if t.figures and t.figures.headroom_bytes < 0]
    lacking.sort(key=lambda pair: (pair[0], pair[1].number))
    return [(show(trial.point, knobs), three_digits(size / GIB)) for size, trial in lacking[:_ROWS]]


def _reasons(answer: Answer, knobs: Sequence[str]) -> list[tuple[str, int, str, str]]:
    """Rules, failures and equations, most frequent first, each with an example."""
    groups: dict[str, list[Trial]] = collections.defaultdict(list)
    for trial in answer.trials:
        if trial.fate in ("pruned", "illegal", "failed"):
            groups[f"pruned: {trial.rule}" if trial.rule else trial.fate].append(trial)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return [(name, len(trials), show(trials[0].point, knobs), trials[0].words) for name, trials in ordered]
