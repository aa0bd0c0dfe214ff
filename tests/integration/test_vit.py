"""ViT-Huge on one GPU: precisions and activation checkpointing compared."""

from __future__ import annotations

import pytest

from presim.trace.schema import Category, Phase
from presim.trace.signatures import Attention, Convolution, Gemm
from support.captured import Job, run

LAYERS, HIDDEN, FEED_FORWARD, ROWS = 32, 1280, 5120, 32 * 257
PRECISIONS = ("fp32", "autocast", "bf16")

pytestmark = pytest.mark.torch_cuda


def vit(precision: str, *args: str) -> Job:
    return run("vit_huge.py", "--precision", precision, *args)


def activations(job: Job) -> int:
    """Peak bytes of activations kept for backward."""
    return next(held.bytes for held in job.result.memory.by_category if held.name == "activation")


@pytest.mark.parametrize("precision", PRECISIONS)
def test_products_have_the_requested_type(precision: str) -> None:
    """The layers' products in fp32 or in bf16; their FLOPs are the same in all three."""
    job = vit(precision)
    products = [one for one in job.signatures(job.work(Phase.FORWARD)) if isinstance(one, Gemm) and one.m == ROWS]
    assert {product.dtype for product in products} == {"float32" if precision == "fp32" else "bfloat16"}
    matrices = LAYERS * (4 * HIDDEN * HIDDEN + 2 * HIDDEN * FEED_FORWARD)
    assert sum(product.flops for product in products) == 2 * ROWS * matrices


@pytest.mark.parametrize("precision", PRECISIONS)
def test_checkpointing_recomputes_the_layers_once_and_frees_most_activations(precision: str) -> None:
    """It repeats each layer's forward except for the last product; the rest of the step is the same."""
    plain, checkpointed = vit(precision), vit(precision, "--checkpoint")
    layers = 2 * ROWS * LAYERS * (4 * HIDDEN * HIDDEN + 2 * HIDDEN * FEED_FORWARD)
    last = 2 * ROWS * LAYERS * HIDDEN * FEED_FORWARD
    assert plain.gemm_flops(Phase.RECOMPUTE) == 0
    assert checkpointed.gemm_flops(Phase.RECOMPUTE) in (layers, layers - last)
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        assert checkpointed.gemm_flops(phase) == plain.gemm_flops(phase)
    assert activations(checkpointed) < 0.4 * activations(plain)
    assert checkpointed.result.step_time_s > plain.result.step_time_s


def test_full_precision_is_slower_and_larger() -> None:
    full, mixed, half = (vit(precision).result for precision in PRECISIONS)
    assert full.step_time_s > mixed.step_time_s > half.step_time_s
    peaks = [result.memory.peak_allocated_bytes for result in (full, mixed, half)]
    assert peaks == sorted(peaks, reverse=True)


@pytest.mark.parametrize(("precision", "size"), [("fp32", 4), ("autocast", 4), ("bf16", 2)])
def test_parameters_gradients_and_moments_are_in_the_model_s_type(precision: str, size: int) -> None:
    job = vit(precision)
    held, model = job.held_after_step(), size * job.trace.manifest.model["parameters"]
    assert held[Category.PARAMETER] == pytest.approx(model, rel=0.03)
    assert held[Category.GRADIENT] == pytest.approx(model, rel=0.03)
    assert held[Category.OPTIMIZER_STATE] == pytest.approx(2 * model, rel=0.03)


def test_patches_are_a_convolution_with_a_weight_gradient() -> None:
    """Images need no gradient: forward and the filter's gradient have equal FLOPs."""
    job = vit("bf16")
    found = [one for one in job.signatures(job.work()) if isinstance(one, Convolution)]
    assert [one.direction for one in found] == ["forward", "backward_weight"]
    assert {one.flops for one in found} == {2 * 32 * 16 * 16 * HIDDEN * 3 * 14 * 14}


def test_attention_is_not_causal() -> None:
    job = vit("bf16")
    found = [one for one in job.signatures(job.work()) if isinstance(one, Attention)]
    assert len(found) == 2 * LAYERS
    assert {(one.batch, one.heads, one.q_len, one.head_dim, one.causal) for one in found} == {(32, 16, 257, 80, False)}
