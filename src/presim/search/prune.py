"""Pruning (stub to be replaced)."""

from __future__ import annotations

from collections.abc import Sequence

from presim.search.trial import Point, Trial


class Keeps:
    """Prunes nothing."""

    def order(self, points: Sequence[tuple[int, Point]]) -> list[tuple[int, Point]]:
        """As they come."""
        return list(points)

    def told(self, trial: Trial) -> None:
        """Nothing is learnt."""

    def pruned(self, number: int, point: Point) -> Trial | None:
        """Every point is evaluated."""
        return None
