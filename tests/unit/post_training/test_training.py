"""Prices of training steps: a framework's own step scales the composed grid; logits and heads go by tokens."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from presim.composition.plan import Plan
from presim.post_training import training
from presim.post_training.logits import HeadSeconds, LogitsSeconds
from support.rl_jobs import memory, prices

SIZES = np.array([[2048, 1024]]), np.array([[2048**2, 1024 * 512]])


def test_a_frameworks_step_scales_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    captured = SimpleNamespace(result=SimpleNamespace(energy=None, memory=memory(), not_modelled=["Loading data."]))
    monkeypatch.setattr(training, "_point", lambda evaluation, plan, rest_s: training._Point(1.0, 0.2, 0.03, 0.0))
    monkeypatch.setattr(training, "_rest_s", lambda double, once, stages: 0.5)
    composed = prices().training
    full = training._Point(1.0, 0.1, 0.06, 0.0)
    scaled = training._as_framework(composed, full, Plan(sequence=4096), (captured, captured))  # type: ignore[arg-type]
    assert scaled.rest_s == 0.5
    assert scaled.update_s(*SIZES) - 0.5 == pytest.approx(2 * (composed.update_s(*SIZES) - composed.rest_s))
    assert scaled.forward_s(*SIZES) == pytest.approx(composed.forward_s(*SIZES) / 2)
    assert scaled.not_modelled == ("Loading data.",)


def test_ranks_that_share_experts_wait_for_each_other_in_every_micro_batch() -> None:
    """Without experts, and in groups of their degree; FSDP's all meet."""
    sizes = np.array([[1000, 3000], [3000, 1000], [2000, 2000], [1000, 1000]]), np.zeros((4, 2))
    plain = prices(1e-3).training
    seconds = {
        (style, expert): dataclasses.replace(
            plain, plan=Plan(sequence=4096, data_style=style, expert=expert), rest_s=0.0
        ).forward_s(*sizes)
        for style, expert in (("zero1", 1), ("zero1", 2), ("zero1", 4), ("fsdp2", 1))
    }
    expected = {("zero1", 1): 4000, ("zero1", 2): 6000, ("zero1", 4): 6000, ("fsdp2", 1): 6000}
    assert seconds == pytest.approx({key: tokens * 1e-3 / 4 for key, tokens in expected.items()})


def test_logits_take_time_in_proportion_to_tokens() -> None:
    plain = prices().training
    with_logits = dataclasses.replace(plain, logits=LogitsSeconds(old=1e-4, update=2e-4))
    assert with_logits.forward_s(*SIZES) - plain.forward_s(*SIZES) == pytest.approx(2048 * 1e-4 + 1024 * 1e-4)
    assert with_logits.forward_s(*SIZES, is_reference=True) == plain.forward_s(*SIZES)
    assert with_logits.update_s(*SIZES) - plain.update_s(*SIZES) == pytest.approx(3072 * 2e-4)


def test_a_critic_has_no_logits() -> None:
    plain = prices().training
    with_head = dataclasses.replace(plain, head=HeadSeconds(1e-6, 3e-6), logits=LogitsSeconds(1.0, 1.0, 1.0))
    assert plain.values_s(*SIZES) - with_head.values_s(*SIZES) == pytest.approx(3072e-6)
    assert plain.critic_update_s(*SIZES) - with_head.critic_update_s(*SIZES) == pytest.approx(3 * 3072e-6)
