"""Evaluate boosted trees for many rows at once, in numpy."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from presim.cost.learned.learned_model_file import LEAF_UNIT, Tree

Array = NDArray[np.float64]
_ROWS = 4096  # evaluated at once: limits the memory, which grows with rows and trees


@dataclasses.dataclass(frozen=True)
class Forest:
    """All trees of a model in flat arrays; node i of any tree is one entry."""

    roots: NDArray[np.int64]
    feature: NDArray[np.int64]  # 0 at leaves
    threshold: Array  # infinite at leaves
    low: NDArray[np.int64]  # child if the feature is at most the threshold; a leaf is its own child
    high: NDArray[np.int64]
    value: Array
    depth: int
    limit: float

    @classmethod
    def of(cls, thresholds: Sequence[Sequence[float]], trees: Sequence[Tree], limit: float) -> Forest:
        """The arrays of trees that have been checked."""
        feature: list[int] = []
        threshold: list[float] = []
        low: list[int] = []
        high: list[int] = []
        value: list[float] = []
        roots: list[int] = []
        depth = 0
        for tree in trees:
            start = len(feature)
            roots.append(start)
            open_nodes: list[tuple[int, int]] = []  # inner nodes without their second child yet, with their depth
            level = 0
            for node, (split, number) in enumerate(zip(tree.split, tree.value), start):
                inner = split >= 0
                feature.append(max(split, 0))
                threshold.append(thresholds[split][number] if inner else np.inf)
                value.append(0.0 if inner else number * LEAF_UNIT)
                low.append(node + 1 if inner else node)
                high.append(node)
                depth = max(depth, level)
                if inner:
                    level += 1
                    open_nodes.append((node, level))
                elif open_nodes:
                    parent, level = open_nodes.pop()
                    high[parent] = node + 1
        return cls(
            np.array(roots, np.int64), np.array(feature, np.int64), np.array(threshold), np.array(low, np.int64),
            np.array(high, np.int64), np.array(value), depth, limit,
        )  # fmt: skip

    def evaluate(self, rows: Array) -> Array:
        """Sum of the trees for each row of features, within the limit."""
        if not len(self.roots):
            return np.zeros(len(rows))
        parts = [self._evaluate(rows[start : start + _ROWS]) for start in range(0, len(rows), _ROWS)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _evaluate(self, rows: Array) -> Array:
        nodes = np.broadcast_to(self.roots, (len(rows), len(self.roots)))
        numbers = np.arange(len(rows))[:, None]
        for _ in range(self.depth):
            goes_low = rows[numbers, self.feature[nodes]] <= self.threshold[nodes]
            nodes = np.where(goes_low, self.low[nodes], self.high[nodes])
        total: Array = np.clip(self.value[nodes].sum(axis=1), -self.limit, self.limit)
        return total
