"""A load whose simulation would take hours is refused before it is generated."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from presim.errors import InputError
from presim.hardware.cluster_choice import choose_cluster
from presim.serving import serving_effort
from presim.serving.deployments.deployment import Deployment
from presim.serving.engines.engine import Life, Scaling
from presim.serving.model_lookup import find
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps.times import build
from presim.serving.workloads.generate import Lengths, WorkloadRecipe, generate
from presim.system.budgets import Budget


@pytest.fixture(scope="module")
def deployment() -> Deployment:
    return Deployment(build(find("llama3.2-1b"), ServingPlan(), choose_cluster(gpu="h100-sxm", world_size=1)))


RECIPE = WorkloadRecipe(1000, Lengths(512), Lengths(64), rate=10.0)
REFUSED: tuple[tuple[dict[str, object], dict[str, object], str], ...] = (
    ({"requests": 90_000_000}, {}, "90,000,000 requests would take about "),
    (
        {"rate": 1e-6, "requests": 5000},
        {},
        "5,000 requests would arrive over 158 years, more than the 127 years of",
    ),
    ({"turns": 1000, "think_s": 1e8}, {}, "1,000 requests would arrive over 3,165 years"),
    ({}, {"replicas": 1_000_000}, "1,000,000 engines with "),
    (
        {"rate": 1e-4},
        {"life": Life(mtbf_h=1e-4)},
        "27,777,778 decisions of the autoscaler and failures of engines would take",
    ),
    ({"rate": 1e-5}, {"life": Life(Scaling(1, 4, interval_s=0.001))}, "100,000,000,000 decisions of the autoscaler"),
)


@pytest.mark.parametrize(("recipe", "fleet", "words"), REFUSED)
def test_work_beyond_the_budget_is_refused(
    recipe: dict[str, object], fleet: dict[str, object], words: str, deployment: Deployment
) -> None:
    changed = dataclasses.replace(deployment, **fleet)  # type: ignore[arg-type]
    with pytest.raises(InputError) as refused:
        serving_effort.check_recipe(dataclasses.replace(RECIPE, **recipe), changed, Budget(60.0))  # type: ignore[arg-type]
    assert str(refused.value).startswith(words)


def test_usual_work_is_not(deployment: Deployment) -> None:
    serving_effort.check_recipe(RECIPE, deployment, Budget())
    serving_effort.check_workload(generate(RECIPE), deployment, Budget())


def test_a_saved_workload_is_looked_at_alike(deployment: Deployment) -> None:
    workload = dataclasses.replace(generate(RECIPE), output=np.full(1000, 1 << 30))
    with pytest.raises(
        InputError, match=r"^1,000 requests would take about .*, more than the budget of 10 minutes and"
    ):
        serving_effort.check_workload(workload, deployment, Budget())
