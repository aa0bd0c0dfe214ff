"""Order the points of a command so that lower numbers of a knob are captured before higher ones follow from them.

A line is a set of points that differ in the value of one knob. Its points are evaluated in ascending order, each after
those below it, until a worker finds that nothing is extended along it (`presim.planner.lines.extended_point`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from presim.errors import InputError
from presim.planner.knobs import CLUSTER, field_of, fields
from presim.planner.lines.captured_points import CapturedPoints
from presim.planner.search_request import SearchRequest
from presim.planner.strategy.no_pruning import NoPruning
from presim.planner.trials.placeholders import fill_placeholders
from presim.planner.trials.trial import Point, Trial, Value, format_value, key
from presim.planner.trials.trial_messages import Lines
from presim.system.files.scratch import temporary_folder

FEWEST = 3  # values: two are captured
_PLAN_FIELDS_THAT_EXTEND = ("global_batch",)
_SIZES = ("nodes", "world_size")
_CHANGE_THE_CAPTURE = (
    "live",
    "profile_missing",
    "save",
    "sanitize",
    "events",
)  # options: only a capture has their answer


def extensible_knobs(varied: Mapping[str, Sequence[Value]], also: Collection[str] = ()) -> dict[str, tuple[Value, ...]]:
    """The knobs along which points may follow from others, with their values in ascending order.

    They have three whole numbers and more, and are not what changes the work of a layer, such as tensor parallelism.
    ``also``: plan fields that do not change it in this search.

    >>> extensible_knobs({"tp": (1, 2, 4), "accum": (8, 32, 16), "lr": (0.1, 0.2, 0.3), "nodes": (1, 2)})
    {'accum': (8, 16, 32)}
    """
    plan_fields = fields()
    extensible: dict[str, tuple[Value, ...]] = {}
    for name, values in varied.items():
        field = field_of(name)
        changes_work = field in plan_fields and field not in (*_PLAN_FIELDS_THAT_EXTEND, *also)
        changes_node = field in CLUSTER and field not in _SIZES
        numbers = [value for value in values if isinstance(value, int) and not isinstance(value, bool) and value > 0]
        if len(numbers) == len(values) >= FEWEST and not changes_work and not changes_node:
            extensible[name] = tuple(sorted(numbers))
    return extensible


def can_extend(options: Mapping[str, object]) -> bool:
    """Whether the options of a search leave it to presim how a point is answered."""
    return options.get("draws", 1) == 1 and not any(options.get(name) for name in _CHANGE_THE_CAPTURE)


class LineOrder(NoPruning):
    """Lets points wait for those below them on each line, and prunes nothing."""

    def __init__(self, knobs: Mapping[str, Sequence[Value]], captured_points: CapturedPoints) -> None:
        self._knobs, self._captured = knobs, captured_points

    def order(self, points: Sequence[tuple[int, Point]]) -> list[tuple[int, Point]]:
        """Points with fewer steps up from the lowest ones first."""

        def height(numbered: tuple[int, Point]) -> tuple[int, int]:
            number, point = numbered
            return sum(len(lower_points(point, knob, values)) for knob, values in self._knobs.items()), number

        return sorted(points, key=height)

    def waits_for(self, point: Point) -> list[Point]:
        """The points below it on the lines that may have a law."""
        return [
            lower
            for knob, values in self._knobs.items()
            if not self._captured.is_stopped(point, knob)
            for lower in lower_points(point, knob, values)
        ]


def lines_of(request: SearchRequest, stack: contextlib.ExitStack) -> Lines | None:
    """The lines of a request's points, with a temporary folder for their jobs; None: each point is captured."""
    is_local_and_listed = request.ray is None and request.strategy == "exhaustive"
    if not (request.command and request.extends and is_local_and_listed and can_extend(request.options)):
        return None
    knobs = extensible_knobs(request.space.varied, ["pipeline"] if _stages_have_ranks_of_their_own(request) else [])
    if not knobs:
        return None
    folder = stack.enter_context(temporary_folder("lines"))
    return Lines(folder=str(folder), knobs={name: list(values) for name, values in knobs.items()})


def _stages_have_ranks_of_their_own(request: SearchRequest) -> bool:
    """Whether the world grows with the number of stages: else more stages have fewer layers each."""
    varied = request.space.varied
    names = [name for name in varied if field_of(name) == "pipeline"]
    return any(len(set(_world_sizes(request, name))) == len(varied[name]) for name in names)


def _world_sizes(request: SearchRequest, knob: str) -> list[int]:
    """Ranks of the command for each value of a knob, with the first value of each other one; none if it has no such."""
    from presim.evaluation.options import RunOptions
    from presim.verbs.run import cluster_of_command

    first = {name: values[0] for name, values in request.space.varied.items()}
    points = [{**first, knob: value} for value in request.space.varied[knob]]
    try:
        return [
            cluster_of_command(
                fill_placeholders(request.command, point, request.words),
                RunOptions(**{**request.options, **{name: point[name] for name in point if name in CLUSTER}}),
            ).world_size
            for point in points
        ]
    except InputError:
        return []


def line_order(lines: Lines) -> LineOrder:
    """The order of the points of a search."""
    return LineOrder(lines.knobs, CapturedPoints(Path(lines.folder)))


def notes_on_lines(lines: Lines, trials: Sequence[Trial]) -> list[str]:
    """How many points follow from captures of others, and why others do not."""
    extended = [trial for trial in trials if trial.figures is not None and trial.figures.source == "extended"]
    captured = sum(trial.figures is not None and trial.figures.source == "captured" for trial in trials)
    notes = []
    if extended:
        notes.append(
            f"{len(extended)} of {len(extended) + captured} points were not captured but extended from captures of "
            f"others, first {key(extended[0].point)}: {extended[0].words}. --confirm K captures the K best."
        )
    reasons = CapturedPoints(Path(lines.folder)).reasons()
    if reasons and captured:
        further = f" {len(reasons) - 1} further reasons are like it." if len(reasons) > 1 else ""
        reason = reasons[0].rstrip(".")
        notes.append(f"Captured where nothing followed from others. Along {reason}.{further}")
    return notes


def lower_points(point: Point, knob: str, values: Sequence[Value]) -> list[Point]:
    """The points of a line below one, in ascending order.

    >>> lower_points({"accum": 32, "tp": 1}, "accum", (8, 16, 32))
    [{'accum': 8, 'tp': 1}, {'accum': 16, 'tp': 1}]
    """
    position = [*map(format_value, values)].index(format_value(point[knob]))
    return [{**point, knob: value} for value in values[:position]]
