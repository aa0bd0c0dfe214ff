"""Roles on pools of their own, and GPUs that switch between rollouts and training: closed forms and sums."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from presim.composition.plan import Plan
from presim.errors import InputError
from presim.hardware.cluster_choice import choose_cluster
from presim.post_training.idle_time import pool_gpus
from presim.post_training.requested_pools import placement_of
from presim.post_training.rl_job import Placement, RlJob, ScoringPool, Trainer
from presim.post_training.rl_loop import SimulatedRun, simulate
from presim.post_training.rl_phases import PhasePrices
from presim.post_training.rl_request import RlRequest
from presim.serving.workloads.generate import Lengths
from support import rl_jobs

SCORERS = ScoringPool("scorers", 2, ("reference", "critic"))
HYBRID = Placement(2, 4, is_colocated=False, is_hybrid=True)


def _job(placement: Placement, **fields: object) -> RlJob:
    trainer = Trainer(Plan(sequence=4096), 4096, 4096, has_reference=True, has_critic=True)
    return rl_jobs.job(placement=placement, trainer=trainer, response=Lengths(448), **fields)  # type: ignore[arg-type]


def _prices(token_s: float = 1e-4, scoring_token_s: float | None = None) -> PhasePrices:
    prices = rl_jobs.prices(token_s)
    if scoring_token_s is None:
        return prices
    return dataclasses.replace(prices, scoring=(rl_jobs.prices(scoring_token_s).training,))


def _seconds(run: SimulatedRun, pool: str, phase: str) -> float:
    return sum(span.seconds for span in run.spans if (span.pool, span.phase) == (pool, phase))


def test_pools_score_at_the_same_time_and_update_at_the_same_time() -> None:
    """With equal lengths, a step has the longer of both pools' passes before updates, and of both updates."""
    apart = Placement(2, 2, is_colocated=False, scoring_pools=(SCORERS,))
    run = simulate(_job(apart, steps=1), _prices(1e-4, 3e-4))
    tokens = 8 * 4 * 512 / 2
    scored_s, updated_s = (tokens * share for share in (0.25 * 3e-4 * 2, 0.75 * 3e-4))  # of the slower pool
    rollout_s = _seconds(run, "rollout", "rollout")
    assert run.steps[0].end_s == pytest.approx(rollout_s + scored_s + updated_s + 0.05 + 0.25)
    assert _seconds(run, "training", "waiting for scores") == pytest.approx(scored_s - tokens * 0.25e-4)
    assert _seconds(run, "training", "reference log-probabilities") == 0
    assert _seconds(run, "scoring scorers", "critic update") == pytest.approx(updated_s + 0.05)


def test_a_pool_that_scores_at_no_cost_saves_what_the_actor_would_take() -> None:
    together = simulate(_job(Placement(2, 2, is_colocated=False), steps=1), _prices())
    apart = Placement(2, 2, is_colocated=False, scoring_pools=(SCORERS,))
    alone = simulate(_job(apart, steps=1), _prices(1e-4, 1e-12))
    phases = ("reference log-probabilities", "values", "critic update")
    saved_s = sum(_seconds(together, "training", phase) for phase in phases)
    assert together.steps[0].end_s - alone.steps[0].end_s == pytest.approx(saved_s)


def test_gpus_that_switch_shorten_the_rollout_and_train_as_before() -> None:
    """A hybrid rollout is that of a pool with all GPUs; a step is not shorter than its phases."""
    hybrid = simulate(_job(HYBRID, steps=2, sequences=2), _prices())
    separate = simulate(_job(Placement(2, 2, is_colocated=False), steps=2, sequences=2), _prices())
    all_generate = simulate(_job(Placement(4, 4), steps=2, sequences=2), _prices())
    assert _seconds(hybrid, "switching", "rollout") == pytest.approx(_seconds(all_generate, "all GPUs", "rollout"))
    assert _seconds(hybrid, "rollout", "rollout") < 0.75 * _seconds(separate, "rollout", "rollout")
    for phase in ("old log-probabilities", "update"):
        assert _seconds(hybrid, "switching", phase) == pytest.approx(_seconds(separate, "training", phase))


PLACEMENTS = st.sampled_from(
    (
        HYBRID,
        dataclasses.replace(HYBRID, scoring_pools=(SCORERS,)),
        Placement(4, 4, scoring_pools=(SCORERS,)),
        Placement(2, 2, is_colocated=False, staleness=1.0, scoring_pools=(SCORERS,)),
        Placement(2, 2, is_colocated=False, staleness=2.0, is_partial=True, scoring_pools=(SCORERS,)),
    )
)


@settings(deadline=None, max_examples=20)
@given(PLACEMENTS, st.integers(0, 100), st.sampled_from((1e-7, 1e-4)), st.sampled_from((1e-7, 3e-4)))
def test_gpu_time_of_all_pools_adds_up(placement: Placement, seed: int, token_s: float, scoring_token_s: float) -> None:
    job = dataclasses.replace(_job(placement, steps=3), seed=seed)
    prices = _prices(token_s, scoring_token_s if placement.scoring_pools else None)
    prices = dataclasses.replace(prices, offload_s=0.2 if placement.has_switches else 0.0)
    run = simulate(job, prices)
    gpus = pool_gpus(placement)
    gpu_s = sum(span.seconds * gpus[span.pool] for span in run.spans)
    assert gpu_s == pytest.approx(placement.gpus * run.steps[-1].end_s)
    assert sum(gpus.values()) == placement.gpus


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"staleness": 1.0}, "GPUs that switch between rollouts and training are simulated on-policy"),
        ({"rollout_gpus": 8}, "8 of 8 GPUs cannot generate while others train; use --rollout-gpus of 1 to 7"),
        ({"gpus": 6}, "the pools of the placement have 6 GPUs, and the cluster 8; change one of both"),
    ],
)
def test_hybrid_pools_that_cannot_be_are_refused(fields: dict[str, object], sentence: str) -> None:
    request = RlRequest(model="qwen3-0.6b", placement="hybrid", **fields)  # type: ignore[arg-type]
    with pytest.raises(InputError) as error:
        placement_of(request, choose_cluster(gpu="h100-sxm", world_size=8))
    assert str(error.value).startswith(sentence)
