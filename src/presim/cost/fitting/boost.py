"""Fit boosted trees with LightGBM and convert them to the model format. The same rows give the same trees."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from presim.cost.learned.learned_model_file import LEAF_UNIT, Tree
from presim.errors import InputError

Array = NDArray[np.float64]
Edges: TypeAlias = tuple[tuple[float, ...], ...]
Trees: TypeAlias = tuple[Tree, ...]


@dataclasses.dataclass(frozen=True)
class SizeLimits:
    """Size limits of a fit."""

    trees: int = 90
    leaves: int = 18
    rate: float = 0.14
    min_rows: int = 30  # minimum rows per leaf
    share: float = 1.0  # share of the features, drawn anew for each tree


EXTRA = SizeLimits(
    trees=100, leaves=31, rate=0.15, min_rows=20
)  # for rows that have extra trees beside the common ones


def limits_for(rows: int) -> SizeLimits:
    """Limits for a number of rows: under 100 rows only a constant.

    More trees were fitted too closely to the calibrating shapes.
    """
    if rows < 100:
        return SizeLimits(trees=0)
    if rows < 1500:
        return SizeLimits(trees=30, leaves=6, rate=0.15, min_rows=10)
    if rows < 5000:
        return SizeLimits()
    if rows < 12000:
        return SizeLimits(trees=200, leaves=31, rate=0.1, min_rows=20)
    if rows < 60000:
        return SizeLimits(trees=300, leaves=63, rate=0.15, min_rows=20, share=0.5)
    return SizeLimits(trees=400, leaves=127, rate=0.12, min_rows=20, share=0.5)


def fit(features: Array, target: Array, limits: SizeLimits) -> tuple[Edges, Trees]:
    """Thresholds per feature, and trees whose sum approximates the median of the target.

    Raises:
        InputError: LightGBM is not installed.
    """
    level = float(np.median(target))
    first = Tree((-1,), (round(level / LEAF_UNIT),))
    if not limits.trees:
        return tuple(() for _ in features.T), (first,)
    booster = _boost(features, target - level, limits)
    thresholds: list[set[float]] = [set() for _ in features.T]
    roots = [tree["tree_structure"] for tree in booster.dump_model()["tree_info"]]
    for root in roots:
        _collect(root, thresholds)
    edges = tuple(tuple(sorted(values)) for values in thresholds)
    numbers = [{edge: number for number, edge in enumerate(column)} for column in edges]
    return edges, (first, *(_tree(root, numbers) for root in roots))


def merge(common: tuple[Edges, Trees], extra: tuple[Edges, Trees], feature: int) -> tuple[Edges, Trees]:
    """Merge two forests; the trees of ``extra`` add nothing where ``feature``, a yes or no, is 0."""
    half = [{0.5} if column == feature else set() for column in range(len(common[0]))]
    edges = tuple(
        tuple(sorted({*common_edges, *extra_edges, *switch_edges}))
        for common_edges, extra_edges, switch_edges in zip(common[0], extra[0], half)
    )
    numbers = [{edge: number for number, edge in enumerate(column)} for column in edges]
    below = (_renumbered(tree, extra[0], numbers) for tree in extra[1])
    root = numbers[feature][0.5]
    grafted = (Tree((feature, -1, *tree.split), (root, 0, *tree.value)) for tree in below)
    return edges, (*(_renumbered(tree, common[0], numbers) for tree in common[1]), *grafted)


def _renumbered(tree: Tree, edges: Edges, numbers: list[dict[float, int]]) -> Tree:
    """The trees with threshold numbers of a longer list."""
    values = (
        numbers[split][edges[split][value]] if split >= 0 else value for split, value in zip(tree.split, tree.value)
    )
    return Tree(tree.split, tuple(values))


def _boost(features: Array, target: Array, limits: SizeLimits) -> Any:
    try:
        import lightgbm
    except ImportError as error:
        raise InputError("fitting needs LightGBM: pip install 'presim[fit]'") from error
    parameters = {
        "objective": "l1", "num_leaves": limits.leaves, "learning_rate": limits.rate, "lambda_l2": 1.0,
        "min_data_in_leaf": limits.min_rows, "seed": 1, "deterministic": True, "force_row_wise": True, "num_threads": 1,
        "feature_fraction": limits.share, "verbose": -1,
    }  # fmt: skip
    return lightgbm.train(parameters, lightgbm.Dataset(features, target), limits.trees)


def _edge(node: dict[str, Any]) -> float:
    """A threshold of six digits, between two measured values."""
    return float(f"{node['threshold']:.6g}")


def _collect(node: dict[str, Any], thresholds: list[set[float]]) -> None:
    if "split_feature" in node:
        thresholds[node["split_feature"]].add(_edge(node))
        _collect(node["left_child"], thresholds)
        _collect(node["right_child"], thresholds)


def _tree(root: dict[str, Any], numbers: list[dict[float, int]]) -> Tree:
    split, value = [], []
    pending = [root]
    while pending:
        node = pending.pop()
        if "split_feature" in node:
            split.append(int(node["split_feature"]))
            value.append(numbers[node["split_feature"]][_edge(node)])
            pending += [node["right_child"], node["left_child"]]
        else:
            split.append(-1)
            value.append(round(node["leaf_value"] / LEAF_UNIT))
    return Tree(tuple(split), tuple(value))
