"""The deployment named best against all others, each simulated under its own largest load. A question is one line."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from presim.serving.answer import metrics
from presim.serving.deployments import deployment_ranking
from presim.serving.deployments.capacity import MOST_REQUESTS, OfferedLoad, Trial, judge, largest, load_of, trial
from presim.serving.deployments.deployment import Deployment
from presim.serving.deployments.deployment_point import excess
from presim.serving.deployments.deployment_search import Found, Space, search
from presim.serving.deployments.prediction import predict
from presim.serving.deployments.rates import sustainable_rate
from presim.serving.engines.simulate_fleet import simulate
from presim.serving.model_lookup import find
from presim.serving.workloads.generate import Lengths, WorkloadRecipe, generate
from support.long_cases import marked


@dataclasses.dataclass(frozen=True)
class Question:
    model: str
    gpu: str
    gpus: int
    prompt: int
    output: int
    slo: str

    def __str__(self) -> str:
        return f"{self.model}, {self.gpu}, {self.slo}"

    def asked(self) -> tuple[Found, OfferedLoad]:
        slo = metrics.slo_of(self.slo.split())
        space = Space((self.gpu,), tps=(1, 2), pps=(1,), budgets=(8192,), most_gpus=self.gpus)
        workload = generate(WorkloadRecipe(MOST_REQUESTS, Lengths(self.prompt), Lengths(self.output), rate=1.0))
        return search(find(self.model), space, self.prompt, self.output, slo), load_of(workload, slo)


QUESTIONS = [
    Question("llama3-8b", "h100-sxm", 2, 512, 128, "ttft:200 tpot:15"),
    Question("qwen3-30b-a3b", "b200", 2, 2048, 256, "ttft:300 tpot:15"),  # the estimate is less than half of it
]
FURTHER_QUESTIONS = [
    Question("llama3-8b", "l40s", 2, 1024, 256, "ttft:1000 tpot:40"),
    Question("llama3-8b", "l40s", 2, 4000, 200, "ttft:3000 tpot:60@mean"),
    Question("llama3-8b", "a100-80gb-sxm", 2, 2000, 400, "ttft:500 tpot:25"),
    Question("qwen3-30b-a3b", "h200", 2, 1024, 256, "ttft:500@mean tpot:50"),
    Question("llama3-70b", "b200", 4, 1024, 256, "ttft:1000 tpot:40"),
]


@pytest.mark.parametrize(
    "question",
    [
        QUESTIONS[0],
        *(pytest.param(question, marks=pytest.mark.long) for question in (*QUESTIONS[1:], *FURTHER_QUESTIONS)),
    ],
    ids=str,
)
def test_the_best_is_within_5_percent_of_an_exhaustive_simulation(question: Question) -> None:
    found, load = question.asked()
    ranked = deployment_ranking.rank(found, load)
    plans = deployment_ranking.plans_of(found.points)
    by_name = {plan[0].name: min(plan, key=lambda point: abs(excess(point, load.slo) - 1)) for plan in plans}
    every = {name: deployment_ranking.outcome_of(point, load, 0.0) for name, point in by_name.items()}
    most = max(outcome.per_gpu for outcome in every.values() if outcome.verdict == "meets")
    assert ranked.best is not None
    assert ranked.best.per_gpu >= 0.95 * most
    for outcome in ranked.outcomes:
        alone = every[outcome.point.name]
        if outcome.verdict == "misses":
            assert alone.verdict == "misses"
        elif alone.verdict == "meets":  # what "fewer" serves is less than the load that it was tried at
            assert outcome.verdict == "meets" or alone.per_gpu <= 1.02 * outcome.per_gpu


@pytest.mark.parametrize("question", marked(QUESTIONS, ["qwen3-30b-a3b"], lambda question: question.model))
def test_serve_agrees_about_the_best(question: Question) -> None:
    """All requests of an ordinary run, the first included: they meet the SLO at 95 % of its load, not at 110 %."""
    found, load = question.asked()
    best = deployment_ranking.rank(found, load).best
    assert best is not None
    assert best.trial is not None
    deployment = deployment_ranking.deployment_of(best.point)
    lengths = Lengths(question.prompt), Lengths(question.output)
    for share, keeps in ((0.95, True), (1.1, False)):
        workload = generate(WorkloadRecipe(2000, *lengths, rate=share * best.trial.rate, seed=1))
        assert metrics.meets(predict(deployment, workload, load.slo, find_knee=False).served, load.slo) == keeps


def test_the_first_requests_are_not_judged() -> None:
    """A first wave breaks the p99 of a whole run, not that of its steady state."""
    found, load = Question("llama3-8b", "h100-sxm", 1, 512, 128, "ttft:150").asked()
    deployment = deployment_ranking.deployment_of(found.points[0])
    arriving = load.workload.scaled(30.0)
    wave = dataclasses.replace(arriving, arrival_ns=(arriving.arrival_ns - arriving.arrival_ns[100]).clip(0))
    served = simulate(wave, deployment.fleet())
    assert not metrics.meets(served, load.slo)
    assert judge(served, load.slo, 30.0).meets


@pytest.mark.parametrize("bound", [0.03, 1.0, 7.7, 100.0])
def test_the_largest_rate_is_bisected(bound: float) -> None:
    rates: list[float] = []

    def run(rate: float) -> Trial:
        rates.append(rate)
        return Trial(rate, 1000, {}, rate <= bound, 1.0, rate / bound)

    assert bound / 1.02 <= largest(run, 4.0, 0.01).rate <= bound
    assert len(rates) < 25
    missed = largest(run, 4.0, 0.01, least=200.0)
    assert (missed.rate, missed.meets) == (200.0, False)


def test_no_rate_meets_a_bound_below_the_lowest() -> None:
    missed = largest(lambda rate: Trial(rate, 1000, {}, False, 1.0, 2.0), 4.0, 0.01)
    assert (missed.rate, missed.meets) == (0.01, False)


def test_a_fault_in_one_deployment_keeps_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    found, load = Question("llama3-8b", "h100-sxm", 1, 512, 128, "tpot:15").asked()
    broken = found.points[0].engine

    def faulty(deployment: Deployment, load: OfferedLoad, rate: float, stay_s: float, **limits: Any) -> Trial:
        if deployment.engine is broken:
            raise ValueError("a fault")
        return trial(deployment, load, rate, stay_s, **limits)

    monkeypatch.setattr(deployment_ranking, "trial", faulty)
    ranked = deployment_ranking.rank(found, load)
    (reason,) = (outcome.reason for outcome in ranked.outcomes if outcome.trial is None)
    assert "ValueError: a fault" in reason
    assert ranked.best is not None


def test_without_an_slo_plans_are_simulated_just_below_the_load_at_which_a_queue_grows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once each, as every lower load would do; what is simulated is named."""
    found, load = Question("llama3-8b", "h100-sxm", 1, 512, 128, "").asked()
    rates: list[float] = []
    texts: list[str] = []

    def counted(deployment: Deployment, load: OfferedLoad, rate: float, stay_s: float, **limits: Any) -> Trial:
        rates.append(rate)
        return trial(deployment, load, rate, stay_s, **limits)

    monkeypatch.setattr(deployment_ranking, "trial", counted)
    ranked = deployment_ranking.rank(found, load, say=texts.append)
    assert len(rates) == len(ranked.outcomes) == len(texts)
    assert ranked.best is not None
    assert ranked.best.trial is not None
    deployment = deployment_ranking.deployment_of(ranked.best.point)
    assert ranked.best.trial.rate == deployment_ranking.STEADY * (sustainable_rate(deployment, load.workload) or 0)
    assert texts[0].startswith("simulating 1 x h100-sxm TP1 ")


def test_prefill_apart_sustains_what_it_serves_without_a_growing_queue() -> None:
    """Requests of one length that begin together end together, too; their tokens come evenly."""
    slo = metrics.slo_of([])
    space = Space(("h100-sxm",), tps=(1,), pps=(1,), budgets=(2048,), most_gpus=3)
    workload = generate(WorkloadRecipe(3000, Lengths(1024), Lengths(256), rate=1.0))
    points = search(find("llama3-8b"), space, 1024, 256, slo).points
    apart = next(point for point in points if (point.prefill_replicas, point.replicas) == (2, 1))
    deployment = deployment_ranking.deployment_of(apart)
    rate = sustainable_rate(deployment, workload)
    assert rate is not None
    for share, is_steady in ((0.95, True), (1.25, False)):
        stays = metrics.latencies_ms(simulate(workload.scaled(share * rate), deployment.fleet()))["e2el"]
        quarters = [float(part.mean()) for part in np.array_split(stays, 4)]
        assert (quarters[2] < 1.2 * quarters[1]) == is_steady
