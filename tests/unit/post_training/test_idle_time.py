"""Idle GPUs by cause, and goodput at limits of staleness."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from presim.post_training.idle_time import by_cause
from presim.post_training.rl_answer import RlAnswer, answer
from presim.post_training.rl_loop import simulate
from presim.serving.workloads.generate import Lengths
from support import rl_jobs


def _answer(token_s: float = 1e-5, **fields: object) -> RlAnswer:
    built = rl_jobs.built(rl_jobs.job(**fields))  # type: ignore[arg-type]
    built = dataclasses.replace(built, prices=rl_jobs.prices(token_s))
    return answer(built, simulate(built.job, built.prices))


def test_separate_pools_on_policy_wait_for_each_other() -> None:
    """Each pool idles while the other works, and both during the transfer of weights."""
    shown = _answer(response=Lengths(448), steps=1)
    causes = {(idle.pool, idle.cause): idle.seconds for idle in shown.idle}
    phases = {(phase.pool, phase.phase): phase.seconds for phase in shown.phases}
    assert causes["training", "waiting for rollouts"] == pytest.approx(phases["rollout", "rollout"])
    trained_s = sum(seconds for (pool, phase), seconds in phases.items() if "log" in phase or phase == "update")
    assert causes["rollout", "waiting for weights"] == pytest.approx(trained_s)
    assert causes["training", "weight sync"] == causes["rollout", "weight sync"] == pytest.approx(0.25)


def test_ranks_with_short_sequences_wait_for_others() -> None:
    """Equal lengths leave no rank waiting; one long response in a few does."""
    assert not [idle for idle in _answer(response=Lengths(448)).idle if idle.cause.startswith("ranks wait")]
    uneven = _answer(1e-4, prompts=4, samples=1, response=Lengths(200, 2.0, longest=2000))
    assert [idle.seconds > 0 for idle in uneven.idle if idle.cause.startswith("ranks wait")] == [True]


@settings(deadline=None, max_examples=15)
@given(st.sampled_from((0.0, 1.0, 2.0)), st.booleans(), st.integers(0, 100), st.sampled_from((1e-7, 1e-4)))
def test_idle_time_is_part_of_the_step_and_goodput_ends_at_the_throughput(
    staleness: float, is_partial: bool, seed: int, token_s: float
) -> None:
    lengths = Lengths(200, 1.0, longest=1000)
    shown = _answer(token_s, staleness=staleness, is_partial=is_partial, seed=seed, steps=5, response=lengths)
    assert 0 < sum(by_cause(shown.idle).values()) < 1
    for pool in shown.pools:
        assert sum(idle.seconds for idle in shown.idle if idle.pool == pool.name) <= shown.figures.step_time_s
    throughputs = [limit.tokens_per_s_per_gpu for limit in shown.goodput]
    assert throughputs == sorted(throughputs)
    assert throughputs[-1] == pytest.approx(shown.figures.tokens_per_s_per_gpu)
    assert len(throughputs) == shown.figures.largest_staleness + 1
