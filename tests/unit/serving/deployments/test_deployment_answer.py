"""Which candidates are confirmed, what bounds a search, and how limits rank deployments."""

from __future__ import annotations

import dataclasses

import pytest

from presim.serving.answer.metrics import slo_of
from presim.serving.deployments import deployment_answer, deployment_ranking
from presim.serving.deployments.capacity import OfferedLoad, Trial, load_of
from presim.serving.deployments.demand import Demand
from presim.serving.deployments.deployment_point import DeploymentPoint
from presim.serving.deployments.deployment_ranking import RankedDeployment, Ranking
from presim.serving.deployments.deployment_search import Found, Space, search
from presim.serving.deployments.sensitivity import Confirmed
from presim.serving.model_lookup import find
from presim.serving.workloads.generate import Lengths, WorkloadRecipe, generate
from support.deployments import point

OUTPUT = 100.0


@pytest.fixture(scope="module")
def points() -> list[DeploymentPoint]:
    return [point(tp=tp, replicas=replicas) for tp, replicas in ((1, 1), (1, 2), (2, 1), (4, 1))]


def outcome(deployed: DeploymentPoint, rate: float) -> RankedDeployment:
    return RankedDeployment(deployed, "meets", Trial(rate, 1000, {}, True, 1.0, 0.9), OUTPUT)


def load() -> OfferedLoad:
    workload = generate(WorkloadRecipe(4000, Lengths(400), Lengths(int(OUTPUT)), rate=1.0))
    return load_of(workload, slo_of(["tpot:14"]))


@pytest.mark.parametrize(("last_rate", "count"), [(4.0, 2), (8.5, 3)])
def test_only_candidates_that_may_follow_are_confirmed(
    points: list[DeploymentPoint], monkeypatch: pytest.MonkeyPatch, last_rate: float, count: int
) -> None:
    """Draws lower 10 requests/s to 9 and 9 to 8.1: what never served more than that is not simulated again."""
    ranked = Ranking(tuple(map(outcome, points[1:], (10.0, 9.0, last_rate))), 3, False)
    confirmed_names: list[str] = []

    def confirm(candidate: RankedDeployment, _: OfferedLoad) -> Confirmed:
        confirmed_names.append(candidate.point.name)
        assert candidate.trial is not None
        lowered = dataclasses.replace(candidate.trial, rate=0.9 * candidate.trial.rate)
        return Confirmed(dataclasses.replace(candidate, trial=lowered), {}, 20.0)

    monkeypatch.setattr(deployment_answer, "confirmed", confirm)
    demand = Demand(total_gpus=4)
    told: list[str] = []
    doubled = [dataclasses.replace(entry, point=dataclasses.replace(entry.point, gpus=4)) for entry in ranked.outcomes]
    ranked = dataclasses.replace(ranked, outcomes=tuple(doubled))
    valued = deployment_answer._confirmed(ranked, load(), demand, told.append)
    assert len(confirmed_names) == len(told) == count
    assert told[-1].endswith(f"plan {count} of at most 3")
    rates = [entry.outcome.trial.rate for entry in valued if entry.outcome.trial]
    assert rates[-2:] == pytest.approx([8.1, 9.0])


def test_losses_under_limits_are_of_all_that_is_allowed(points: list[DeploymentPoint]) -> None:
    """Two engines on two GPUs serve more than one, however much that one serves for its GPU."""
    single, wide = outcome(points[0], 5.0), outcome(points[3], 12.0)
    (loss,) = deployment_answer._losses(single, (single, wide), Demand(total_gpus=4))
    assert loss[1] == pytest.approx(1 - 12 / 20)
    (loss,) = deployment_answer._losses(single, (single, wide), Demand())
    assert loss[1] == pytest.approx(1 - 3 / 5)


def found() -> Found:
    space = Space(("h100-sxm",), tps=(1, 2), pps=(1,), budgets=(2048, 8192), weights=(None,), most_gpus=2)
    return search(find("llama3-8b"), space, 400, int(OUTPUT), slo_of(["tpot:14"]))


def test_a_search_ends_at_its_bound_and_says_what_it_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    whole = deployment_ranking.rank(found(), load(), say=told.append)
    assert whole.unsimulated == 0
    assert " of at most " in told[0]
    assert told[1].endswith("s for the rest of its kind")
    assert all(entry.tokens > 0 for entry in whole.outcomes)
    monkeypatch.setattr(deployment_ranking, "_MOST_TOKENS", 1)
    bounded = deployment_ranking.rank(found(), load())
    assert len(bounded.outcomes) == 2  # the first of each kind
    assert bounded.unsimulated >= len(whole.outcomes) - 2
