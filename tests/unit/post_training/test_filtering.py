"""Filters of prompts, turns of responses, critics and reward models: what they add, and that no token is lost."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from presim.errors import InputError
from presim.post_training.answer_times import AnswerTimes
from presim.post_training.filtering import check
from presim.post_training.rl_job import RlJob
from presim.post_training.rl_loop import SimulatedRun, simulate
from presim.post_training.turns import Turns, split
from support import rl_jobs


def job(**fields: object) -> RlJob:
    colocated = rl_jobs.job(is_colocated=True, steps=2)
    return dataclasses.replace(colocated, batch=dataclasses.replace(colocated.batch, **fields))


def phase_s(run: SimulatedRun, phase: str) -> float:
    return sum(span.seconds for span in run.spans if span.phase == phase)


@settings(deadline=None, max_examples=10)
@given(st.floats(0.2, 0.95), st.sampled_from((4, 8, 24)))
def test_tokens_are_trained_on_or_dropped(kept_share: float, round_prompts: int) -> None:
    filtered = job(kept_share=kept_share, round_prompts=round_prompts)
    run = simulate(filtered, rl_jobs.prices())
    prompts = sum(step.trained_responses for step in run.steps) * 64
    trained = sum(step.trained_tokens for step in run.steps) - prompts
    dropped = sum(step.dropped_tokens for step in run.steps)
    assert run.generated_tokens == trained + dropped
    assert all(step.trained_responses == filtered.batch.responses for step in run.steps)


def test_fewer_prompts_that_pass_take_longer() -> None:
    steps = [simulate(job(kept_share=share, round_prompts=8), rl_jobs.prices()).steps[-1].end_s for share in (0.9, 0.3)]
    assert steps[1] > 1.5 * steps[0]


def test_a_filter_that_starves_training_is_refused() -> None:
    with pytest.raises(InputError) as error:
        check(job(kept_share=0.01, round_prompts=8).batch)
    assert str(error.value) == (
        "with 0.01 of 8 prompts kept, 8 take about 100 rounds of generation; raise --keep or --round-prompts"
    )


def test_each_turn_waits_for_its_environment() -> None:
    single = simulate(job(), rl_jobs.prices())
    waiting = simulate(job(turns=Turns(3, AnswerTimes(5.0))), rl_jobs.prices())
    assert phase_s(waiting, "rollout") == pytest.approx(phase_s(single, "rollout") + 2 * 10, rel=0.1)
    assert waiting.generated_tokens == single.generated_tokens


def test_what_an_environment_answers_is_trained_on() -> None:
    steps = [simulate(job(turns=turns), rl_jobs.prices()).steps[0] for turns in (Turns(3), Turns(3, tool_tokens=100))]
    assert steps[1].trained_tokens - steps[0].trained_tokens == 200 * steps[0].trained_responses
    assert steps[1].generated_tokens == steps[0].generated_tokens


@given(st.lists(st.integers(5, 10_000), min_size=1, max_size=20), st.integers(1, 5))
def test_turns_generate_all_tokens(lengths: list[int], turns: int) -> None:
    parts = split(np.array(lengths), turns)
    assert parts.sum(axis=1).tolist() == lengths
    assert parts.min() >= 1


def test_a_critic_and_a_reward_model_have_phases() -> None:
    made = rl_jobs.job(is_colocated=True, steps=1)
    trainer = dataclasses.replace(made.trainer, has_critic=True, has_reward_model=True)
    run = simulate(dataclasses.replace(made, trainer=trainer), rl_jobs.prices())
    assert phase_s(run, "critic update") == pytest.approx(phase_s(run, "update"))
    assert phase_s(run, "values") == pytest.approx(phase_s(run, "reward model"))
    assert phase_s(run, "values") == pytest.approx(phase_s(run, "old log-probabilities"))
