"""DeepSpeed: steps are the engine's, memory and communication of each stage match the ZeRO paper."""

from __future__ import annotations

import os
from collections.abc import Iterator
from unittest import mock

import pytest

from presim.trace.schema import Category, Phase
from presim.trace.signatures import Copy, Gemm, Optimizer
from support.captured import ROOT, Job, run
from support.long_cases import marked

RANKS = 8
LAYERS, HIDDEN, FEED_FORWARD, VOCABULARY, TOKENS = 4, 512, 1376, 32000, 2048
MATRICES = LAYERS * (4 * HIDDEN**2 + 3 * HIDDEN * FEED_FORWARD)
PARAMETERS = 2 * VOCABULARY * HIDDEN + MATRICES + (2 * LAYERS + 1) * HIDDEN

pytestmark = [pytest.mark.torch_cuda, pytest.mark.needs("deepspeed")]


@pytest.fixture(autouse=True, scope="module")
def compiled_quickly() -> Iterator[None]:
    """DeepSpeed compiles its optimizer for the host at its first use: 40 s of CPU instead of 90."""
    compiler = ROOT / "tests" / "support" / "compilers" / "g++"
    extensions = ROOT / "build" / "torch-extensions"
    with mock.patch.dict(os.environ, CXX=str(compiler), TORCH_EXTENSIONS_DIR=str(extensions)):
        yield


def zero(stage: int, *args: str) -> Job:
    return run("deepspeed_zero.py", "--model", "tiny", "--stage", str(stage), *args, world_size=RANKS)


@pytest.mark.parametrize("stage", marked([0, 1, 2, 3], ["0", "1", "2"]))
def test_the_model_s_parameters_are_counted_in_all_and_per_rank(stage: int) -> None:
    model = zero(stage).trace.manifest.model
    assert model["parameters"] == PARAMETERS
    assert model["parameters_local"] == (PARAMETERS // RANKS if stage == 3 else PARAMETERS)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_products_are_the_model_s_for_every_stage(stage: int) -> None:
    job = zero(stage)
    forward = 2 * TOKENS * (MATRICES + VOCABULARY * HIDDEN)
    assert job.gemm_flops(Phase.FORWARD) == forward
    assert job.gemm_flops(Phase.BACKWARD) == 2 * forward


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_the_optimizer_runs_on_a_rank_s_share_of_the_parameters(stage: int) -> None:
    """Without overflow no step is skipped. There is one flat shard, so each foreach AdamW kernel runs once."""
    job = zero(stage)
    kernels = [one for one in job.signatures(job.work(Phase.OPTIMIZER)) if isinstance(one, Optimizer)]
    assert [one.operator for one in kernels] == [
        "aten::_foreach_mul_",  # weight decay
        "aten::_foreach_lerp_",
        "aten::_foreach_mul_",
        "aten::_foreach_addcmul_",
        "aten::_foreach_sqrt",
        "aten::_foreach_div_",
        "aten::_foreach_add_",
        "aten::_foreach_addcdiv_",
    ]
    assert {one.elements for one in kernels} == {PARAMETERS // RANKS}
    assert job.held_after_step()[Category.OPTIMIZER_STATE] == pytest.approx(2 * 4 * PARAMETERS / RANKS, rel=0.01)


def test_a_dynamic_loss_scale_finds_no_overflow_and_skips_no_step() -> None:
    """In fp16 DeepSpeed reads whether a sum or norm of the gradients is finite; policies provide the value."""
    job = zero(2, "--precision", "fp16")
    updates = [one for one in job.signatures(job.work(Phase.OPTIMIZER)) if isinstance(one, Optimizer)]
    assert PARAMETERS // RANKS in {one.elements for one in updates}
    assert {read.answer for read in job.trace.manifest.read_backs} >= {"gradient norm", "number"}


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_gradients_are_reduced_whole_and_updated_shards_gathered(stage: int) -> None:
    """This version reduces to the shard's owner by an all-reduce of the bucket; scalars are norm and overflow."""
    job = zero(stage)
    reduced = sum(one.bytes for one in job.collectives() if one.kind == "all_reduce" and one.bytes > 8)
    assert reduced == 2 * PARAMETERS
    assert job.collective_bytes("all_gather") == (2 * PARAMETERS if stage else 0)


def test_zero_3_scatters_gradients_and_gathers_parameters() -> None:
    """Norms are persistent parameters and gathered after the update, all others in the forward pass."""
    job = zero(3)
    norms = 2 * (2 * LAYERS + 1) * HIDDEN
    assert job.collective_bytes("reduce_scatter") == 2 * PARAMETERS
    assert job.collective_bytes("all_gather", Phase.OPTIMIZER) == norms
    assert job.collective_bytes("all_gather") == 2 * PARAMETERS


@pytest.mark.long
def test_a_step_is_the_engine_s_although_the_optimizer_steps_once_per_group() -> None:
    """The Trainer has parameter groups with and without weight decay; ZeRO-3 steps each separately."""
    job = run("hf_trainer.py", "--backend", "deepspeed", world_size=RANKS)
    products = [one for one in job.signatures(job.work(Phase.FORWARD)) if isinstance(one, Gemm)]
    assert len(job.trace.steps()) == 3
    assert len(products) == 8 * 7 + 1


@pytest.mark.long
def test_gradient_accumulation_makes_one_step_of_several_passes() -> None:
    once, twice = zero(2), zero(2, "--accumulate", "2")
    assert twice.gemm_flops(Phase.FORWARD) == 2 * once.gemm_flops(Phase.FORWARD)
    assert twice.trace.manifest.batch["tokens"] == 2 * TOKENS


@pytest.mark.long
def test_checkpointing_recomputes_each_layer_once() -> None:
    job = zero(3, "--checkpoint")
    last = 2 * TOKENS * LAYERS * HIDDEN * FEED_FORWARD  # of each layer; what follows is not needed again
    assert job.gemm_flops(Phase.RECOMPUTE) in (2 * TOKENS * MATRICES, 2 * TOKENS * MATRICES - last)


@pytest.mark.long
def test_an_offloaded_optimizer_only_copies_on_the_device() -> None:
    """The shard's gradients are copied to the host, updated by DeepSpeed's Adam, and copied back."""
    job = zero(2, "--offload", "optimizer")
    work = job.signatures(job.work())
    assert not [one for one in job.signatures(job.work(Phase.OPTIMIZER)) if isinstance(one, Optimizer)]
    assert not job.held_after_step()[Category.OPTIMIZER_STATE]
    moved = {
        way: sum(one.bytes for one in work if isinstance(one, Copy) and one.direction == way) for way in ("d2h", "h2d")
    }
    assert moved["d2h"] >= 2 * PARAMETERS // RANKS
    assert moved["h2d"] >= 2 * PARAMETERS // RANKS


@pytest.mark.long
def test_offloaded_parameters_leave_the_device_between_steps() -> None:
    kept, offloaded = zero(3), zero(3, "--offload", "all")
    assert offloaded.held_after_step()[Category.PARAMETER] < kept.held_after_step()[Category.PARAMETER]


@pytest.mark.long
def test_ranks_agree_on_lists_that_exceed_one_broadcast() -> None:
    """80 KB: ZeRO-3's module order is that long with many adapters."""
    assert len(run("deepspeed_long_list.py", world_size=RANKS, steps=2).trace.steps()) == 2
