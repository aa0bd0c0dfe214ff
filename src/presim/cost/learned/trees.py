"""Evaluate boosted trees for many rows at once, in numpy."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from presim.cost.learned.learned_model_file import LEAF_UNIT, Tree

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
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
        counts = np.array([len(tree.split) for tree in trees], np.int64)
        split = np.array([feature for tree in trees for feature in tree.split], np.int64)
        number = np.array([value for tree in trees for value in tree.value], np.int64)
        is_inner, nodes = split >= 0, np.arange(len(split))
        # Thresholds of all features in a row, as the numbers of inner nodes count them from their feature's first.
        all_thresholds = np.array([*(edge for edges in thresholds for edge in edges), np.inf])
        first_threshold = np.cumsum([0, *map(len, thresholds)])[:-1]
        index = np.full(len(split), len(all_thresholds) - 1)
        index[is_inner] = first_threshold[split[is_inner]] + number[is_inner]
        roots = np.cumsum(counts) - counts
        high = _second_children(is_inner, roots, counts)
        return cls(
            roots=roots,
            feature=np.maximum(split, 0),
            threshold=all_thresholds[index],
            low=np.where(is_inner, nodes + 1, nodes),
            high=high,
            value=np.where(is_inner, 0.0, number * LEAF_UNIT),
            depth=_depth(is_inner, roots, high),
            limit=limit,
        )

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


def _second_children(is_inner: NDArray[np.bool_], roots: Ints, counts: Ints) -> Ints:
    """The second child of each node [n] of trees in preorder; a leaf is its own.

    An inner node opens a bracket and the leaf before its second child closes it, so that brackets of the same nesting
    alternate. The last leaf of a tree closes none.
    """
    balance = np.cumsum(np.where(is_inner, 1, -1))
    before_tree = np.concatenate([[0], balance])[roots]
    nesting = balance - np.repeat(before_tree, counts) + ~is_inner
    by_nesting = np.argsort(nesting, kind="stable")
    by_nesting = by_nesting[nesting[by_nesting] > 0]
    children = np.arange(len(is_inner))
    children[by_nesting[0::2]] = by_nesting[1::2] + 1
    return children


def _depth(is_inner: NDArray[np.bool_], roots: Ints, second_children: Ints) -> int:
    """The most inner nodes between a root and a leaf."""
    depth, nodes = 0, roots
    while len(inner := nodes[is_inner[nodes]]):
        depth, nodes = depth + 1, np.concatenate([inner + 1, second_children[inner]])
    return depth
