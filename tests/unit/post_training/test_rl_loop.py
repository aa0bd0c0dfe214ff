"""The outer simulation: no token appears from nowhere or is lost, no sample is too stale, time adds up."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from presim.post_training import rollout
from presim.post_training.answer_times import AnswerTimes
from presim.post_training.rl_loop import SimulatedRun, simulate
from presim.post_training.weights import WeightSync
from presim.serving.workloads.generate import Lengths
from support import rl_jobs

JOBS = st.fixed_dictionaries(
    {
        "staleness": st.sampled_from((0.0, 0.5, 1.0, 2.0, 3.0)),
        "is_partial": st.booleans(),
        "seed": st.integers(0, 1000),
        "steps": st.integers(1, 5),
        "response": st.sampled_from((Lengths(50), Lengths(200, 1.5, longest=2000))),
        "sequences": st.sampled_from((2, 16)),
    }
)
TOKEN_S = st.sampled_from((1e-7, 1e-5, 1e-3))


@settings(deadline=None, max_examples=25)
@given(JOBS, TOKEN_S)
def test_tokens_that_are_generated_are_trained_on_or_in_flight(fields: dict[str, Any], token_s: float) -> None:
    job = rl_jobs.job(**fields)
    run = simulate(job, rl_jobs.prices(token_s))
    prompts = sum(step.trained_responses for step in run.steps) * 64
    trained = sum(step.trained_tokens for step in run.steps) - prompts
    assert run.generated_tokens == trained + run.in_flight_tokens
    assert all(step.trained_responses == job.batch.responses for step in run.steps)


@settings(deadline=None, max_examples=25)
@given(JOBS, TOKEN_S)
def test_no_sample_is_staler_than_the_bound(fields: dict[str, Any], token_s: float) -> None:
    run = simulate(rl_jobs.job(**fields), rl_jobs.prices(token_s))
    for step in run.steps:
        assert step.staleness.min() >= 0
        assert step.staleness.max() <= math.ceil(fields["staleness"])


def test_more_groups_than_a_step_takes_do_not_become_due_at_once() -> None:
    """24 groups start with the first weights, and short responses to later prompts end before some of them."""
    job = rl_jobs.job(staleness=2.0, is_partial=True, response=Lengths(200, 1.5, longest=2000))
    run = simulate(job, rl_jobs.prices(1e-7))
    assert max(int(step.staleness.max()) for step in run.steps) == 2


@settings(deadline=None, max_examples=15)
@given(JOBS, st.booleans())
def test_each_pool_is_in_one_phase_at_any_time(fields: dict[str, Any], is_colocated: bool) -> None:
    if is_colocated:
        fields |= {"staleness": 0.0, "is_partial": False}
    run = simulate(rl_jobs.job(**fields, is_colocated=is_colocated), rl_jobs.prices())
    for pool in {span.pool for span in run.spans}:
        spans = [span for span in run.spans if span.pool == pool]
        assert all(before.end_s == after.start_s for before, after in itertools.pairwise(spans))
        assert spans[0].start_s == 0
        assert spans[-1].end_s == pytest.approx(run.steps[-1].end_s)


ABORTS = st.fixed_dictionaries(
    {
        "spare_prompts": st.integers(0, 8),
        "cut_share": st.sampled_from((0.0, 0.1, 0.5)),
        "is_colocated": st.booleans(),
        "seed": st.integers(0, 1000),
        "steps": st.integers(1, 3),
        "sequences": st.sampled_from((2, 16)),
    }
)


@settings(deadline=None, max_examples=25)
@given(ABORTS)
def test_tokens_that_are_generated_are_trained_on_or_dropped(fields: dict[str, Any]) -> None:
    """Aborted responses are dropped and counted; those that train are as many as are complete."""
    job = rl_jobs.job(**fields, response=Lengths(200, 1.0, longest=2000))
    run = simulate(job, rl_jobs.prices())
    assert run.in_flight_tokens == 0
    for step in run.steps:
        trained = step.trained_tokens - 64 * step.trained_responses
        assert step.generated_tokens == trained + step.dropped_tokens
        assert step.trained_responses == 32 - math.floor(fields["cut_share"] * 32)
    if not fields["spare_prompts"] and not fields["cut_share"]:
        assert sum(step.dropped_tokens for step in run.steps) == 0


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 1000), st.sampled_from(({"cut_share": 0.25}, {"spare_prompts": 4, "sequences": 64})))
def test_responses_that_are_aborted_shorten_the_rollout(seed: int, fields: dict[str, Any]) -> None:
    """With a part of the batch aborted, generation ends no later than with all of it."""
    rollouts_s = []
    for aborts in ({}, fields):
        shape = {"sequences": 64, "prompts": 8 if "cut_share" in fields or aborts else 12, "seed": seed, "steps": 1}
        job = rl_jobs.job(is_colocated=True, response=Lengths(200, 1.0, longest=2000), **{**shape, **aborts})
        run = simulate(job, rl_jobs.prices())
        rollouts_s.append(next(span.seconds for span in run.spans if span.phase == "rollout"))
    assert rollouts_s[1] <= rollouts_s[0]


@pytest.mark.parametrize(
    "fields",
    [
        {"staleness": 1.0, "is_partial": True},
        {"staleness": 3.0, "is_partial": True, "sequences": 2},
        {"is_colocated": True, "cut_share": 0.25},
        {"is_colocated": True, "spare_prompts": 4, "sequences": 64},
    ],
)
@pytest.mark.parametrize("token_s", [1e-7, 1e-4])
def test_a_rollout_that_pauses_makes_the_steps_of_a_whole_one(
    fields: dict[str, Any], token_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is simulated behind an interruption changes nothing."""
    runs = []
    for pause_steps in (8, 1_000_000):
        monkeypatch.setattr(rollout, "_PAUSE_STEPS", pause_steps)
        job = rl_jobs.job(**fields, response=Lengths(200, 1.0, longest=2000), steps=5)
        runs.append(simulate(job, rl_jobs.prices(token_s)))
    for paused, whole in zip(runs[0].steps, runs[1].steps):
        assert paused.end_s == whole.end_s
        assert (paused.trained_tokens, paused.generated_tokens) == (whole.trained_tokens, whole.generated_tokens)
        assert paused.rank_busy_s == pytest.approx(whole.rank_busy_s)
        assert paused.staleness.tolist() == whole.staleness.tolist()


def test_a_colocated_step_is_the_sum_of_its_phases() -> None:
    """With equal lengths, every phase has a closed form but the rollout, which one engine's simulation gives."""
    job = rl_jobs.job(is_colocated=True, response=Lengths(448), steps=2, prompts=8, samples=4)
    run = simulate(job, rl_jobs.prices(1e-4, sync_s=0.5, load_s=0.125, offload_s=0.0625))
    rank_tokens = 8 * 4 * 512 / 4
    forward_s, update_s = (rank_tokens * 1e-4 * share for share in (0.25, 0.75))
    beside_s = 0.125 + 2 * forward_s + update_s + 0.05 + 0.5 + 0.0625
    rollout_s = next(span.seconds for span in run.spans if span.phase == "rollout")
    assert run.steps[0].end_s == pytest.approx(rollout_s + beside_s)
    assert run.steps[1].end_s == pytest.approx(2 * run.steps[0].end_s)


def test_one_step_off_policy_takes_the_longer_side() -> None:
    """Once both pools are full, a step is the longer of rollout and training, and a transfer of weights."""
    slow = _steady(simulate(rl_jobs.job(staleness=1.0, response=Lengths(448), steps=4), rl_jobs.prices(1e-3)))
    trained_s = 8 * 4 * 512 / 2 * 1e-3 * 1.25 + 0.05
    assert slow == pytest.approx(trained_s + 0.25)
    fast = simulate(rl_jobs.job(staleness=1.0, response=Lengths(448), steps=4), rl_jobs.prices(1e-8))
    alone = simulate(rl_jobs.job(response=Lengths(448), steps=4), rl_jobs.prices(1e-8))
    rollout_s = next(span.seconds for span in alone.spans if span.phase == "rollout")
    assert _steady(fast) == pytest.approx(rollout_s + 0.25)


def _steady(run: SimulatedRun) -> float:
    return run.steps[-1].end_s - run.steps[-1].start_s


def test_staleness_hides_rollouts_and_partial_responses_cost_recomputed_tokens() -> None:
    lengths = Lengths(300, 1.0, longest=2000)
    jobs = {
        name: simulate(rl_jobs.job(response=lengths, steps=6, **fields), rl_jobs.prices(3e-4))  # type: ignore[arg-type]
        for name, fields in {
            "on-policy": {},
            "waits": {"staleness": 1.0},
            "partial": {"staleness": 2.0, "is_partial": True},
        }.items()
    }
    ends = {name: run.steps[-1].end_s for name, run in jobs.items()}
    assert ends["waits"] < ends["on-policy"]
    assert sum(step.recomputed_tokens for step in jobs["waits"].steps) == 0
    assert sum(step.recomputed_tokens for step in jobs["partial"].steps) > 0


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = (simulate(rl_jobs.job(seed=3, staleness=1.0), rl_jobs.prices()).spans for _ in range(2))
    assert first == second


def test_rewards_are_computed_by_their_workers_while_others_generate() -> None:
    job = rl_jobs.job(is_colocated=True, steps=1, reward=AnswerTimes(0.5), reward_workers=4)
    run = simulate(job, rl_jobs.prices())
    rollout, reward = (next(span for span in run.spans if span.phase == phase) for phase in ("rollout", "reward"))
    assert reward.end_s >= 0.5 * job.batch.responses / 4
    assert reward.start_s == rollout.end_s


@settings(deadline=None, max_examples=10)
@given(JOBS, st.booleans())
def test_gpu_time_of_all_phases_is_that_of_all_gpus(fields: dict[str, Any], is_colocated: bool) -> None:
    if is_colocated:
        fields |= {"staleness": 0.0, "is_partial": False}
    job = rl_jobs.job(**fields, is_colocated=is_colocated)
    run = simulate(job, rl_jobs.prices(load_s=0.1, offload_s=0.2) if is_colocated else rl_jobs.prices())
    sizes = {"all GPUs": 4, "training": job.placement.train_gpus, "rollout": job.placement.rollout_gpus}
    gpu_s = sum(span.seconds * sizes[span.pool] for span in run.spans)
    assert gpu_s == pytest.approx(job.placement.gpus * run.steps[-1].end_s)


def test_engines_generate_during_a_transfer_that_overlaps() -> None:
    """They stop to load alone, and the same steps take less time."""
    job = rl_jobs.job(staleness=1.0, is_partial=True, response=Lengths(448), steps=6)
    prices = dataclasses.replace(rl_jobs.prices(1e-6), sync=WeightSync(0.0, 0.5, 0.125, 1))
    runs = [simulate(dataclasses.replace(job, overlaps_sync=overlaps), prices) for overlaps in (False, True)]
    stops = [
        {round(span.seconds, 6) for span in run.spans if (span.pool, span.phase) == ("rollout", "weight sync")}
        for run in runs
    ]
    assert stops == [{0.625}, {0.125}]
    assert runs[1].steps[-1].end_s < runs[0].steps[-1].end_s
