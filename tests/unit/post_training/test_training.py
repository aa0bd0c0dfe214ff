"""Prices of training steps: a framework's own step takes the place of the composed one, in proportion elsewhere."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from presim.composition.compose import compose
from presim.composition.plan import Plan
from presim.evaluation.pipeline import Evaluation, evaluate
from presim.hardware import Cluster
from presim.hardware.choose import choose_cluster
from presim.post_training.training import TrainingPrices, price_training
from support.models import llama
from support.rl_jobs import prices

POOL = choose_cluster(gpu="h100-sxm", world_size=2)
PLAN = Plan(sequence=2048, data_style="zero1")
SIZES = np.array([[2048, 1024]]), np.array([[2048**2, 1024 * 512]])


def captured(plan: Plan, pool: Cluster) -> Evaluation:
    """Stands for a framework's trainer: the composed step of twice as many layers."""
    return evaluate(compose(llama(4), plan, pool), pool, brief=True)


def priced(**fields: object) -> TrainingPrices:
    return price_training(llama(2), PLAN, POOL, 2048, 2048, 512, **fields)  # type: ignore[arg-type]


@pytest.mark.torch_cuda
def test_a_frameworks_step_scales_the_grid() -> None:
    composed, scaled = priced(), priced(framework=captured)
    slower = scaled.update.linear_s / composed.update.linear_s
    assert slower.min() == pytest.approx(slower.max())
    assert slower.min() > 1
    assert scaled.update_s(*SIZES) > composed.update_s(*SIZES)
    assert composed.forward_s(*SIZES) < composed.update_s(*SIZES)


def test_logits_take_time_in_proportion_to_tokens() -> None:
    plain = prices().training
    logits = dataclasses.replace(plain.logits, old=1e-4, update=2e-4)
    with_logits = dataclasses.replace(plain, logits=logits)
    assert with_logits.forward_s(*SIZES) - plain.forward_s(*SIZES) == pytest.approx(3072 * 1e-4)
    assert with_logits.forward_s(*SIZES, is_reference=True) == plain.forward_s(*SIZES)
    assert with_logits.update_s(*SIZES) - plain.update_s(*SIZES) > 2048 * 2e-4
