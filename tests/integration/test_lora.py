"""LoRA on frozen and on quantised weights: gradients, optimizer states and bits per weight."""

from __future__ import annotations

import pytest

from presim.trace.schema import Category, Phase
from presim.trace.signatures import Gemm, Optimizer
from support.captured import Job, run
from support.long_cases import marked

LAYERS, HIDDEN, KV, FEED_FORWARD, VOCABULARY, TOKENS, RANK = 16, 2048, 512, 8192, 128256, 512, 16
INTO_LAYER = HIDDEN * (HIDDEN + 2 * KV)  # queries, keys and values
MATRICES = LAYERS * (INTO_LAYER + HIDDEN * HIDDEN + 3 * HIDDEN * FEED_FORWARD)
ADAPTERS = LAYERS * RANK * (4 * HIDDEN + 2 * (HIDDEN + KV) + 3 * (HIDDEN + FEED_FORWARD))
BASE = MATRICES + 2 * VOCABULARY * HIDDEN + (2 * LAYERS + 1) * HIDDEN

pytestmark = [pytest.mark.torch_cuda, pytest.mark.needs("peft", "bitsandbytes")]


def lora(quantize: str = "") -> Job:
    return run("lora.py", "--model", "1b", "--length", str(TOKENS), "--quantize", quantize)


def base_flops(job: Job, *phases: Phase) -> int:
    """FLOPs of products without an adapter's operand."""
    products = [one for one in job.signatures(job.work(*phases)) if isinstance(one, Gemm)]
    return sum(one.flops for one in products if RANK not in (one.m, one.n, one.k))


@pytest.mark.long
@pytest.mark.parametrize("quantize", marked(["", "4bit", "8bit"], ["8bit"]))
def test_parameters_are_counted_in_weights_and_not_in_bytes(quantize: str) -> None:
    assert lora(quantize).trace.manifest.model["parameters"] == BASE + ADAPTERS


def test_frozen_weights_have_no_gradient() -> None:
    """Backward has as many FLOPs as forward, except for the gradients of the tokens."""
    job = lora()
    forward = base_flops(job, Phase.FORWARD)
    assert forward == 2 * TOKENS * (MATRICES + VOCABULARY * HIDDEN)
    assert base_flops(job, Phase.BACKWARD) == forward - 2 * TOKENS * INTO_LAYER


@pytest.mark.parametrize("quantize", ["", "4bit"])
def test_the_optimizer_has_the_adapters_only(quantize: str) -> None:
    job = lora(quantize)
    kernels = [one for one in job.signatures(job.work(Phase.OPTIMIZER)) if isinstance(one, Optimizer)]
    assert sum(one.elements for one in kernels if one.operator == "aten::_foreach_addcdiv_") == ADAPTERS
    held = job.held_after_step()
    assert held[Category.OPTIMIZER_STATE] == pytest.approx(2 * 4 * ADAPTERS, rel=0.01)


def test_4_bit_weights_take_half_a_byte_each() -> None:
    """Also a byte of scale per 64 weights; embeddings and norms are not quantised but float32."""
    held = lora("4bit").held_after_step()[Category.PARAMETER]
    plain = 4 * (2 * VOCABULARY * HIDDEN + (2 * LAYERS + 1) * HIDDEN + ADAPTERS)
    assert held == pytest.approx(plain + MATRICES / 2, rel=0.02)


def test_dequantisation_writes_each_weight_and_is_not_a_product() -> None:
    """Once each in forward, recomputation and backward; the products are unchanged."""
    job = lora("4bit")
    unpacked = [
        one
        for one in job.signatures(job.work(Phase.FORWARD))
        if getattr(one, "operator", "") == "bitsandbytes::gemm_4bit"
    ]
    assert sum(one.bytes_written for one in unpacked if one.dtype == "bfloat16") == 2 * MATRICES
    assert base_flops(job, Phase.FORWARD) == base_flops(lora(), Phase.FORWARD)
