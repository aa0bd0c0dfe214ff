"""Samplers propose, presim evaluates: the same seed gives the same trials, and good ones are found."""

from __future__ import annotations

import pytest

from presim.planner.objectives import OBJECTIVES
from presim.planner.search_request import SearchRequest
from presim.planner.space import Space
from presim.planner.strategy.no_pruning import NoPruning
from presim.planner.strategy.sampler import evaluate_sampled_points
from presim.planner.strategy.search_loop import EvaluationRounds, NoStore
from presim.planner.trials.trial import Point, Trial
from presim.planner.trials.trial_messages import Reply
from support.searching import InProcess, figures

SPACE = Space({"a": tuple(range(1, 9)), "b": tuple(range(1, 9)), "c": ("x", "y"), "d": (True, False)}, {})


def reply(point: Point) -> Reply:
    """A bowl around a=6, b=3, with a part that does not fit and one that fails."""
    if point["a"] == 1:
        return Reply(fate="failed", words="it broke")
    time = 1.0 + (int(point["a"]) - 6) ** 2 + (int(point["b"]) - 3) ** 2 + (point["c"] == "x") + bool(point["d"])
    return Reply(fate="priced", figures=figures(time, headroom_gib=-4.0 if point["b"] == 8 else 4.0))


def trials(sampler: str, count: int = 48, *, backwards: bool = False, seed: int = 3) -> list[Trial]:
    request = SearchRequest(
        subject="command",
        command=["{a}"],
        space=SPACE,
        objectives=[OBJECTIVES["step_time"]],
        strategy=sampler,
        trials=count,
        seed=seed,
    )
    workers = InProcess(reply, backwards=backwards)
    return evaluate_sampled_points(
        request, EvaluationRounds(request, workers, NoStore(), lambda text: None), NoPruning()
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "cmaes", "random", "grid"])
def test_the_same_seed_gives_the_same_trials_in_whatever_order_replies_come(sampler: str) -> None:
    once, again = trials(sampler), trials(sampler, backwards=True)
    assert once == again
    assert len({str(trial.point) for trial in once}) == len(once) <= 48
    assert min(trial.figures.step_time_s for trial in once if trial.figures) < 12


def test_model_based_samplers_find_the_best_in_part_of_the_space() -> None:
    found = min(trial.figures.step_time_s for trial in trials("tpe", 100) if trial.figures)
    assert found <= 2.0  # of 256 points, five are as good
