"""Bounds of all plans of a space, kept on disk, so that a search that goes on does not compute them again."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from presim.planner.strategy.plan_bounds import Bound
from presim.planner.trials.trial import format_value

if TYPE_CHECKING:
    from presim.planner.search_request import SearchRequest
    from presim.planner.trials.point_evaluator import PlanEvaluator


class KeptBounds:
    """The bounds of a request's points by `presim.planner.trials.trial.key`."""

    def __init__(self, request: SearchRequest, evaluator: PlanEvaluator) -> None:
        self._request, self._evaluator = request, evaluator

    def load(self) -> dict[str, Bound | None]:
        """The kept bounds; empty if there are none."""
        if self._evaluator.replies is None or not self._name:
            return {}
        return self._evaluator.replies.read(self._name, dict[str, Bound | None]) or {}

    def save(self, bounds: Mapping[str, Bound | None]) -> None:
        """Keep bounds, unless plug-ins may change them."""
        if self._evaluator.replies is not None and self._name:
            self._evaluator.replies.add(self._name, bounds)

    @functools.cached_property
    def _name(self) -> str:
        """What the bounds depend on; empty where a user's pass may change between runs."""
        from presim.planner.trials.reply_cache import name_of

        space, options = self._request.space, sorted(self._request.options.items())
        passes = (*space.varied.get("passes", ()), space.fixed.get("passes", ""))
        if any(":" in format_value(names) for names in passes):
            return ""
        cluster_file = self._request.options.get("cluster") or ""
        clusters = repr(self._evaluator.cluster({})) if cluster_file else ""
        prices = self._evaluator.state_of_prices()
        return name_of("bounds", self._request.graph, space.digest(), options, clusters, prices)
