"""Two forests as one: rows apart have trees that the others do not see."""

from __future__ import annotations

import numpy as np
import pytest

from presim.cost.fitting import boost
from presim.cost.learned.trees import Forest

pytest.importorskip("lightgbm")
LIMITS = boost.SizeLimits(trees=20, leaves=6, rate=0.3, min_rows=5)


def test_trees_apart_add_nothing_to_other_rows() -> None:
    random = np.random.default_rng(3)
    rows = np.stack([random.normal(size=600), np.arange(600) % 2, random.normal(size=600)], axis=1)
    apart = rows[:, 1] > 0
    common = boost.fit(rows * (1, 1, 0), np.sin(rows[:, 0]), LIMITS)
    further = boost.fit(rows[apart], 0.3 * (rows[apart][:, 2] > 0) + 0.2, LIMITS)
    whole = Forest.of(*boost.merge(common, further, 1), 2.0).evaluate(rows)
    alone, more = (Forest.of(*forest, 2.0).evaluate(rows) for forest in (common, further))
    assert whole[~apart] == pytest.approx(alone[~apart], abs=1e-12)
    assert whole[apart] == pytest.approx(alone[apart] + more[apart], abs=1e-12)
    assert np.ptp(more[apart]) > 0.2
