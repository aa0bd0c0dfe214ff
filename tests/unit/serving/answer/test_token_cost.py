"""Energy and money of a served load."""

from __future__ import annotations

import pytest

from presim.hardware.cluster_choice import choose_cluster
from presim.hardware.power import shares
from presim.serving.answer.token_cost import TokenPrices, cost_of, sentence
from presim.serving.deployments.deployment import Deployment
from presim.serving.deployments.prediction import Prediction, predict
from presim.serving.model_lookup import find
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps.times import build
from presim.serving.workloads.generate import Lengths, WorkloadRecipe, generate


@pytest.fixture(scope="module")
def prediction() -> Prediction:
    engine = build(find("llama3-8b"), ServingPlan(), choose_cluster(gpu="h100-sxm", world_size=1))
    return predict(
        Deployment(engine), generate(WorkloadRecipe(40, Lengths(500), Lengths(50), rate=5.0)), find_knee=False
    )


def test_power_is_between_idle_and_the_highest_share(prediction: Prediction) -> None:
    cost = cost_of(prediction, TokenPrices())
    lowest = 700 * (shares()["idle"].share + shares()["node"].share)
    assert lowest < cost.watts < 700 * (shares()["compute"].share + shares()["node"].share)
    low, high = cost.kWh_per_million_output_tokens_range
    assert low < cost.kWh_per_million_output_tokens < high
    rate = prediction.figures["output_throughput"]
    assert cost.kWh_per_million_output_tokens == pytest.approx(cost.watts / rate / 3.6)


def test_money_is_hours_times_price(prediction: Prediction) -> None:
    cost = cost_of(prediction, TokenPrices(gpu_hour=2.5, kwh=0.1))
    hours = 1e6 / prediction.figures["output_throughput"] / 3600
    assert cost.money_per_million_output_tokens == pytest.approx(2.5 * hours)
    energy = cost.kWh_per_million_output_tokens
    assert cost.energy_money_per_million_output_tokens == pytest.approx(0.1 * energy)
    assert f"{2.5 * hours:.3g} for the GPUs" in sentence(cost)


def test_without_prices_there_is_no_money(prediction: Prediction) -> None:
    cost = cost_of(prediction, TokenPrices())
    assert cost.money_per_million_output_tokens is None
    assert "for the GPUs" not in sentence(cost)
