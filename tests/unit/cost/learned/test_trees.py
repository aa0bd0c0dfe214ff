"""Trees in arrays say what the trees say, for any tree and any row."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from presim.cost.learned.learned_model_file import LEAF_UNIT, Tree
from presim.cost.learned.trees import Forest

THRESHOLDS = ((0.0, 1.0, 2.0), (-1.0, 0.5))


@st.composite
def trees(draw: st.DrawFn, depth: int = 4) -> list[tuple[int, int]]:
    if depth == 0 or draw(st.booleans()):
        return [(-1, draw(st.integers(-900, 900)))]
    feature = draw(st.integers(0, 1))
    number = draw(st.integers(0, len(THRESHOLDS[feature]) - 1))
    return [(feature, number), *draw(trees(depth - 1)), *draw(trees(depth - 1))]


def follow(nodes: list[tuple[int, int]], row: list[float]) -> float:
    """One tree walked by hand; consumes the nodes."""
    feature, number = nodes.pop(0)
    if feature < 0:
        return number * LEAF_UNIT
    low, high = follow(nodes, row), follow(nodes, row)
    return low if row[feature] <= THRESHOLDS[feature][number] else high


@given(st.lists(trees(), max_size=5), st.lists(st.tuples(*[st.floats(-3, 3)] * 2), min_size=1, max_size=6))
def test_arrays_agree_with_a_walk(nodes: list[list[tuple[int, int]]], rows: list[tuple[float, float]]) -> None:
    made = [Tree(tuple(node[0] for node in tree), tuple(node[1] for node in tree)) for tree in nodes]
    forest = Forest.of(THRESHOLDS, made, 1.0)
    walked = [sum(follow(list(tree), list(row)) for tree in nodes) for row in rows]
    np.testing.assert_allclose(forest.evaluate(np.array(rows)), np.clip(walked, -1, 1), atol=1e-12)
