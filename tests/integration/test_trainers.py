"""Lightning's and Hugging Face's trainers: phases, steps and communication."""

from __future__ import annotations

import pytest

from presim.trace.schema import Phase
from support.captured import Job, run
from support.long_cases import marked

RANKS = 16
GPT2, GPT2_BLOCKS = 124_439_808, 12 * 7_087_872  # the model card of openai-community/gpt2; a block: 12 h^2 + 13 h
LLAMA = 2 * 32000 * 1024 + 8 * (2 * 1024**2 + 2 * 256 * 1024 + 3 * 1024 * 2816 + 2 * 1024) + 1024
TOKENS = 2 * 256

pytestmark = [pytest.mark.torch_cuda]


def lightning(strategy: str) -> Job:
    arguments = ("--strategy", strategy, "--batch", "2", "--length", "256")
    return run("lightning_gpt.py", *arguments, world_size=RANKS, steps=2)


def hugging_face(backend: str) -> Job:
    return run("hf_trainer.py", "--backend", backend, "--length", "256", world_size=RANKS, steps=2)


@pytest.mark.long
@pytest.mark.needs("lightning")
@pytest.mark.parametrize("strategy", marked(["ddp", "fsdp"], ["ddp"]))
def test_a_forward_in_the_optimizer_s_closure_is_a_forward(strategy: str) -> None:
    """Lightning runs both passes inside ``optimizer.step``; backward is twice as long."""
    job = lightning(strategy)
    products = 2 * TOKENS * (GPT2_BLOCKS - 12 * 13 * 768 + 50257 * 768)
    assert job.gemm_flops(Phase.FORWARD) == products
    assert job.gemm_flops(Phase.BACKWARD) == 2 * products
    assert job.gemm_flops(Phase.OPTIMIZER) == 0


@pytest.mark.needs("lightning")
@pytest.mark.parametrize("strategy", marked(["ddp", "fsdp"], ["ddp"]))
def test_lightning_s_model_is_counted_whole(strategy: str) -> None:
    model = lightning(strategy).trace.manifest.model
    assert model["parameters"] == GPT2
    assert model["parameters_local"] == pytest.approx(GPT2 if strategy == "ddp" else GPT2 / RANKS, rel=0.001)


@pytest.mark.long
@pytest.mark.needs("lightning")
def test_lightning_s_ddp_reduces_gradients_and_its_fsdp_gathers_blocks_twice() -> None:
    """float32 gradients with DDP; bf16 with FSDP, which keeps the outermost unit gathered until backward."""
    assert lightning("ddp").collective_bytes("all_reduce") == 4 * GPT2
    sharded = lightning("fsdp")
    assert sharded.collective_bytes("reduce_scatter") == pytest.approx(2 * GPT2, rel=0.001)
    assert sharded.collective_bytes("all_gather") == pytest.approx(2 * (GPT2 + GPT2_BLOCKS), rel=0.001)


@pytest.mark.long
@pytest.mark.needs("accelerate")
@pytest.mark.parametrize("backend", marked(["ddp", "fsdp"], ["ddp"]))
def test_hugging_face_s_model_is_counted_whole_and_its_products_are_the_model_s(backend: str) -> None:
    job = hugging_face(backend)
    matrices = LLAMA - 32000 * 1024 - 17 * 1024
    assert job.trace.manifest.model["parameters"] == LLAMA
    assert job.gemm_flops(Phase.FORWARD) == 2 * TOKENS * matrices
    assert job.gemm_flops(Phase.BACKWARD) == 4 * TOKENS * matrices


@pytest.mark.long
@pytest.mark.needs("accelerate")
def test_hugging_face_s_ddp_reduces_gradients_and_its_fsdp2_scatters_them() -> None:
    reduced = [one.bytes for one in hugging_face("ddp").collectives(Phase.BACKWARD) if one.kind == "all_reduce"]
    assert sum(size for size in reduced if size > 1024) == 4 * LLAMA  # a small one agrees on new buckets, once
    scattered = hugging_face("fsdp").collective_bytes("reduce_scatter", Phase.BACKWARD)
    assert scattered in (2 * LLAMA, 4 * LLAMA)  # bf16 or float32, as accelerate's defaults have it
