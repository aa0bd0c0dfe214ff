"""Bounds are kept for the same model, space, cluster and prices, and for no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.planner.objectives import OBJECTIVES
from presim.planner.search_request import SearchRequest
from presim.planner.space import Space
from presim.planner.strategy.kept_bounds import KeptBounds
from presim.planner.strategy.plan_bounds import Bound
from presim.planner.trials.point_evaluator import PlanEvaluator
from presim.planner.trials.trial_messages import Subject

BOUNDS = {
    "tensor=1": Bound(1.5, 1 << 30, 80 << 30, 4096.0, 8, "h100-sxm"),
    "tensor=2": None,
}


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def kept(degrees: tuple[int, ...] = (1, 2), passes: tuple[str, ...] = ("none",), gpu: str = "h100-sxm") -> KeptBounds:
    options = {"gpu": gpu, "nodes": 1}
    request = SearchRequest(
        subject="model",
        space=Space({"tensor": degrees, "passes": passes}, {"sequence": 64}),
        objectives=[OBJECTIVES["step_time"]],
        options=options,
        graph=b"graph",
    )
    return KeptBounds(request, PlanEvaluator(Subject(graph=b"graph", options=options)))


def test_kept_bounds_are_found_by_an_equal_request_only() -> None:
    assert kept().load() == {}
    kept().save(BOUNDS)
    assert kept().load() == BOUNDS
    assert kept(degrees=(1, 2, 4)).load() == {}
    assert kept(gpu="a100-80gb-sxm").load() == {}


def test_bounds_with_passes_of_the_user_are_not_kept() -> None:
    kept(passes=("none", "my.module:fuse")).save(BOUNDS)
    assert kept(passes=("none", "my.module:fuse")).load() == {}


def test_without_a_cache_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRESIM_CACHE_MB", "0")
    kept().save(BOUNDS)
    assert kept().load() == {}
