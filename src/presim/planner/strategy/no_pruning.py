"""The pruner of searches in which every point is evaluated."""

from __future__ import annotations

from collections.abc import Sequence

from presim.planner.trials.trial import Point, Trial


class NoPruning:
    """Prunes nothing."""

    def order(self, points: Sequence[tuple[int, Point]]) -> list[tuple[int, Point]]:
        """The given order."""
        return list(points)

    def record(self, trial: Trial) -> None:
        """Does nothing."""

    def waits_for(self, point: Point) -> list[Point]:
        """For none."""
        return []

    def pruned(self, number: int, point: Point) -> Trial | None:
        """Every point is evaluated."""
        return None
