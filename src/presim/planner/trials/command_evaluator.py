"""Evaluate the points of a command: by the cache, by captures of other points on a line, or by capturing it."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from presim.planner.knobs import CLUSTER
from presim.planner.trials.capture_keys import name_of_capture
from presim.planner.trials.evaluated_figures import reply_of
from presim.planner.trials.placeholders import fill_placeholders
from presim.planner.trials.reply_cache import ReplyCache, name_of
from presim.planner.trials.trial import Point, format_value, key
from presim.planner.trials.trial_messages import Reply, Subject

if TYPE_CHECKING:
    from presim.planner.lines.extended_point import PointExtender


class CommandEvaluator:
    """Evaluates the points of a command; ``prices``: the state of the user's price files."""

    def __init__(self, job: Subject, prices: str) -> None:
        self._job, self._prices = job, prices
        is_kept = not (job.options.get("save") or job.options.get("profile_missing"))
        self._cache = ReplyCache.default("captures") if is_kept else None
        self._cache_names: dict[str, str | None] = {}  # by point

    def reply(self, point: Point) -> Reply:
        """The reply for a point.

        Raises:
            PresimError: it could not be captured.
        """
        cache = self._cache
        name = self._cache_name(point) if cache is not None else None
        if cache is None or name is None:
            return self._extend_or_run(point)
        cached = self._cached(cache, name)
        if cached is not None and not self._has_new_points_above(point, cache):
            return cached
        reply = self._extend_or_run(point)
        if reply.figures is not None:  # failed captures are tried again
            is_extended = reply.figures.source == "extended"
            cache.add(_name_of_extended(name) if is_extended else name, reply)
        return reply

    def _cached(self, cache: ReplyCache, name: str) -> Reply | None:
        """The kept reply; an extended one only where the search has lines."""
        captured = cache.find(name)
        return captured if captured is not None or self._extender is None else cache.find(_name_of_extended(name))

    def _has_new_points_above(self, point: Point, cache: ReplyCache) -> bool:
        """Whether points above on a line have no kept reply, so that the job of this one is needed, not its figures."""
        for knob, values in (self._job.lines.knobs if self._job.lines is not None else {}).items():
            position = [*map(format_value, values)].index(format_value(point[knob]))
            for value in values[position + 1 :]:
                name = self._cache_name({**point, knob: value})
                if name is None or self._cached(cache, name) is None:
                    return True
        return False

    def _cache_name(self, point: Point) -> str | None:
        """The name of a point's capture in the cache; files are read once for each point of a search."""
        point_key = key(point)
        if point_key not in self._cache_names:
            options = {**self._options(point), "prices": self._prices}
            self._cache_names[point_key] = name_of_capture(self._words(point), options)
        return self._cache_names[point_key]

    def _words(self, point: Point) -> list[str]:
        return fill_placeholders(self._job.command, point, self._job.words)

    def _options(self, point: Point) -> dict[str, Any]:
        return {**self._job.options, **{name: value for name, value in point.items() if name in CLUSTER}}

    def _extend_or_run(self, point: Point) -> Reply:
        """The reply of captured points below the point on a line, or of the command itself, whose job is then kept."""
        from presim.evaluation.options import RunOptions

        words, options = self._words(point), self._options(point)
        if self._extender is None:
            return self.run(words, options)
        extended = self._extender.extend(point, words, RunOptions(**options))
        if extended is None:
            return self.run(words, {**options, "save": self._extender.points.job_folder(point)})
        evaluation, origin = extended
        return msgspec.structs.replace(reply_of(evaluation, "extended"), words=origin)

    def run(self, words: Sequence[str], options: Mapping[str, Any]) -> Reply:
        """Capture the command."""
        from subprocess import DEVNULL

        from presim.evaluation.options import RunOptions
        from presim.verbs.run import run_and_evaluate

        return reply_of(run_and_evaluate(words, RunOptions(**options), stdout=DEVNULL), "captured")

    @functools.cached_property
    def _extender(self) -> PointExtender | None:
        from presim.planner.lines.extended_point import PointExtender

        lines = self._job.lines
        return None if lines is None else PointExtender(Path(lines.folder), lines.knobs)


def _name_of_extended(name: str) -> str:
    return name_of("extended", name)
