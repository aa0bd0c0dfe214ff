"""Transformer Engine: products, attention and its own kernels with exact shapes, in bf16 and FP8."""

from __future__ import annotations

from collections import Counter

import pytest

from presim.trace.schema import Phase
from presim.trace.signatures import Attention, Gemm, Kernel, Normalization, Optimizer
from support.captured import Job, run
from support.long_cases import marked

LENGTH, BATCH, HIDDEN, FEED_FORWARD, HEADS, GROUPS = 2048, 2, 1024, 4096, 16, 4
TOKENS = LENGTH * BATCH
FUSED_QKV = HIDDEN + 2 * GROUPS * (HIDDEN // HEADS)
MATRICES = HIDDEN * (FUSED_QKV + HIDDEN + 2 * FEED_FORWARD)
PARAMETERS = MATRICES + FUSED_QKV + HIDDEN + FEED_FORWARD + HIDDEN + 4 * HIDDEN  # with biases and two layer norms

pytestmark = [pytest.mark.torch_cuda, pytest.mark.needs("transformer_engine")]


def layer(recipe: str = "") -> Job:
    return run("transformer_engine_layer.py", "layer", *(["--recipe", recipe] if recipe else []), steps=2)


@pytest.mark.parametrize("recipe", marked(["", "delayed", "current", "block"], ["current", "block"]))
def test_products_of_a_layer_have_the_model_s_shapes(recipe: str) -> None:
    """Two FLOPs per parameter and token forward, four backward, whatever the type of the products."""
    job = layer(recipe)
    assert job.gemm_flops(Phase.FORWARD) == 2 * TOKENS * MATRICES
    assert job.gemm_flops(Phase.BACKWARD) == 4 * TOKENS * MATRICES


def test_a_recipe_decides_the_type_of_products() -> None:
    """Delayed scaling multiplies e5m2 gradients by e4m3 weights; without a recipe everything is bf16."""

    def types(job: Job) -> set[tuple[str, str]]:
        return {(one.dtype, one.b_dtype) for one in job.signatures(job.work()) if isinstance(one, Gemm)}

    assert types(layer()) == {("bfloat16", "")}
    assert types(layer("delayed")) == {("float8_e4m3fn", ""), ("float8_e5m2", "float8_e4m3fn")}
    assert types(layer("block")) == {("float8_e4m3fn", "")}


def test_attention_is_cudnn_s_with_grouped_heads() -> None:
    found = [one for one in layer().signatures(layer().work()) if isinstance(one, Attention)]
    assert Counter(one.direction for one in found) == {"forward": 1, "backward": 1}
    shapes = {
        (one.batch, one.heads, one.kv_heads, one.q_len, one.kv_len, one.head_dim, one.causal, one.backend)
        for one in found
    }
    assert shapes == {(BATCH, HEADS, GROUPS, LENGTH, LENGTH, HIDDEN // HEADS, True, "cudnn")}


def test_norms_read_and_write_their_rows_once() -> None:
    job = layer()
    norms = [one for one in job.signatures(job.work(Phase.FORWARD)) if isinstance(one, Normalization)]
    assert [one.operator for one in norms] == ["te::layernorm_fwd"] * 2
    rows = 2 * TOKENS * HIDDEN
    assert all(one.bytes_read == pytest.approx(rows, rel=0.01) for one in norms)
    assert all(one.bytes_written == pytest.approx(rows, rel=0.01) for one in norms)


def test_its_adam_updates_every_parameter() -> None:
    """bf16 parameters and gradients, fp32 moments: 12 bytes read and 10 written per parameter."""
    job = layer()
    found = [one for one in job.signatures(job.work(Phase.OPTIMIZER)) if isinstance(one, Optimizer)]
    assert [one.operator for one in found] == ["te::multi_tensor_adam"]
    assert found[0].bytes_read == pytest.approx(12 * PARAMETERS, rel=1e-3)
    assert found[0].bytes_written == pytest.approx(10 * PARAMETERS, rel=1e-3)


@pytest.mark.parametrize("recipe", marked(["", "delayed", "current", "block"], ["current", "block"]))
def test_no_kernel_is_known_by_its_name_only(recipe: str) -> None:
    job = layer(recipe)
    assert not [one for one in job.signatures(job.work()) if isinstance(one, Kernel)]


@pytest.mark.long
def test_a_fused_router_spreads_tokens_as_the_policy_says() -> None:
    """The script compares the loads that the host reads, from a plain call and from a CUDA graph."""
    assert run("transformer_engine_router.py", steps=2).evaluation.priced.trace.manifest.exit == "ok"
