"""How sure an answer is: other draws of its load, other times of steps."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from presim.serving.answer.metrics import slo_of
from presim.serving.deployments.capacity import OfferedLoad, load_of
from presim.serving.deployments.deployment_ranking import outcome_of
from presim.serving.deployments.sensitivity import confirmed, with_doubt
from presim.serving.workloads.generate import Lengths, WorkloadRecipe, generate
from presim.serving.workloads.workload import make
from support.deployments import point


def load(limit: str) -> OfferedLoad:
    workload = generate(WorkloadRecipe(4000, Lengths(400, spread=0.5), Lengths(60), rate=1.0))
    return load_of(workload, slo_of([limit]))


def test_draws_meet_the_slo_in_the_mean() -> None:
    deployed = point(max_num_batched_tokens=8192)
    asked = load("tpot:14")
    outcome = outcome_of(deployed, asked, 0.0)
    settled = with_doubt(confirmed(outcome, asked), asked)
    assert outcome.trial is not None
    assert settled.outcome.trial is not None
    low, high = settled.ranges["p99_tpot_ms"]
    figure = settled.outcome.trial.figures["p99_tpot_ms"]
    assert low < figure < high
    assert figure <= 14
    assert settled.outcome.trial.rate <= outcome.trial.rate
    slow, fast = settled.rates
    assert slow < settled.outcome.trial.rate < fast < settled.queue_rate / 0.9


@pytest.mark.parametrize("seed", [1, 2])
def test_a_draw_has_the_load_s_lengths_and_rate(seed: int) -> None:
    asked = load("tpot:14")
    drawn = asked.redrawn(seed).workload
    assert len(drawn) == len(asked.workload)
    assert drawn.arrival_ns[-1] == pytest.approx(len(drawn) * 1e9, rel=1e-6)
    assert set(drawn.prompt.tolist()) <= set(asked.workload.prompt.tolist())
    assert drawn.prompt.mean() == pytest.approx(asked.workload.prompt.mean(), rel=0.05)
    assert (drawn.prompt != asked.workload.prompt).any()
    again = asked.redrawn(seed).workload
    assert (again.arrival_ns == drawn.arrival_ns).all()


def test_bursts_of_a_trace_stay_bursts() -> None:
    """Blocks of requests are drawn together: gaps of 1 ms stay next to each other."""
    gaps = np.tile(np.repeat([1_000_000, 2_000_000_000], [60, 4]), 30)
    lengths = np.full(len(gaps), 100)
    traced = load_of(make("bursts", np.cumsum(gaps), lengths, lengths), slo_of(["tpot:20"]), block=64)
    apart = dataclasses.replace(traced, block=1)

    def neighbours(drawn: OfferedLoad) -> float:
        scaled = np.diff(drawn.redrawn(3).workload.arrival_ns)
        short = scaled < np.median(scaled) * 10
        return float((short[1:] & short[:-1]).mean())

    assert neighbours(traced) > neighbours(apart) + 0.02
