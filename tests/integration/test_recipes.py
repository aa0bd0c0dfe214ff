"""Recipes of published runs with own code: the work of a single rank of each."""

from __future__ import annotations

import json

import pytest

from presim.trace.schema import Category, Phase
from presim.trace.signatures import Attention, Elementwise, Fused, Gemm, GroupedGemm, Kernel, Optimizer, Softmax
from support.captured import ROOT, Job, run
from support.long_cases import marked

pytestmark = [pytest.mark.torch_cuda]

RECIPES = ROOT / "validation" / "recipes"


@pytest.mark.long
@pytest.mark.needs("torchtitan")
def test_a_single_stage_of_torchtitan_s_trainer_sends_what_the_next_stage_receives() -> None:
    """The last of two stages of its smallest Llama, with half of the tensors and half of the data."""
    layers, hidden, ffn, vocabulary, length, samples, micro, split = 3, 256, 768, 2048, 1024, 4, 2, 2
    job = run(
        *(str(RECIPES / "torchtitan_trainer.py"), "--family", "llama3", "--flavor", "debugmodel"),
        *("--sequence", str(length), "--batch", str(samples), "--microbatch", str(micro), "--checkpoint", "full"),
        *("--tensor-parallel", str(split), "--pipeline-parallel", "2"),
        world_size=8,
        rank=4,
        steps=2,
    )
    layer = 4 * hidden**2 + 3 * hidden * ffn
    assert job.gemm_flops(Phase.FORWARD) == 2 * length * samples * (layers * layer + vocabulary * hidden) // split
    passed = [(one.kind, one.bytes) for one in job.collectives() if one.kind in ("send", "recv", "send_recv")]
    activation = 2 * micro * length * hidden // split
    assert passed == [("recv", activation), ("send_recv", activation), ("send", activation)]


@pytest.mark.long
@pytest.mark.needs("torchtitan")
def test_torchtitan_s_trainer_keeps_moments_of_adapters_only() -> None:
    """Two bf16 moments per adapter parameter; adapters of attention's fused input, its output and three products."""
    layers, hidden, ffn, heads, kv_heads, rank = 2, 256, 512, 4, 2, 64
    job = run(
        *(str(RECIPES / "torchtitan_trainer.py"), "--family", "llama3", "--dtype", "bfloat16", "--lora", str(rank)),
        *("--shapes", f"{layers},{hidden},{ffn},{heads},{kv_heads},1024", "--sequence", "256", "--batch", "1"),
        steps=2,
    )
    fused = hidden + 2 * kv_heads * (hidden // heads)
    adapters = layers * rank * ((hidden + fused) + 2 * hidden + 3 * (hidden + ffn))
    assert job.held_after_step()[Category.OPTIMIZER_STATE] == pytest.approx(2 * 2 * adapters, rel=0.05)


@pytest.mark.long
@pytest.mark.needs("torchao")
def test_earlier_torchtitan_gathers_activations_in_8_bits_and_attends_without_cudnn() -> None:
    """The forward inputs of each layer's attention and FFN; on an H100."""
    layers, hidden, length = 2, 256, 256
    job = run(
        *(str(RECIPES / "llama_torchtitan.py"), "--layers", str(layers), "--hidden", str(hidden), "--ffn", "1024"),
        *("--heads", "4", "--kv-heads", "4", "--vocab", "1024", "--sequence", str(length), "--batch", "1"),
        *("--tensor-parallel", "2", "--float8", "tensorwise"),
        world_size=2,
        steps=2,
    )
    attention = [one.backend for one in job.signatures(job.work(Phase.FORWARD)) if isinstance(one, Attention)]
    assert attention == layers * ["flash"]
    gathered = [one for one in job.collectives(Phase.FORWARD) if one.dtype == "float8_e4m3fn"]
    assert [(one.kind, one.bytes) for one in gathered] == 2 * layers * [("all_gather", length * hidden)]


MEGATRON = (
    *("--layers", "2", "--hidden", "256", "--ffn", "1024", "--heads", "4", "--kv-heads", "4", "--vocab", "1024"),
    *("--sequence", "256", "--batch", "1", "--accumulate", "1", "--style", "gpt", "--engine", "local"),
)


def megatron(recipe: str, *own: str) -> Job:
    return run(str(RECIPES / recipe), *own, *MEGATRON, world_size=2, steps=2)


@pytest.mark.long
@pytest.mark.needs("megatron.core")
def test_muon_keeps_one_momentum_per_matrix_and_orthogonalises_it_by_fifteen_products() -> None:
    """Five iterations of three products; Adam keeps two moments. Embeddings and vectors stay with Adam."""
    adam, muon = megatron("megatron_gpt.py"), megatron("megatron_variants.py", "--muon", "whole")
    matrices = 2 * 12 * 256**2
    kept = [job.held_after_step()[Category.OPTIMIZER_STATE] for job in (adam, muon)]
    assert kept[0] - kept[1] == pytest.approx(4 * matrices, rel=0.01)
    products = [one for one in muon.signatures(muon.work(Phase.OPTIMIZER)) if isinstance(one, Gemm)]
    assert len(products) >= 15 * 2 * 4
    assert len(products) % 15 == 0


FP8 = (
    *("--layers", "2", "--hidden", "1024", "--ffn", "4096", "--heads", "8", "--kv-heads", "8", "--vocab", "1024"),
    *("--sequence", "256", "--batch", "1", "--accumulate", "1", "--engine", "te", "--distributed-optimizer"),
    *("--set", "fp8='hybrid'", "--set", "fp8_recipe='delayed'", "--set", "fp8_param=True"),
)
WEIGHTS = 2 * (4 * 1024**2 + 3 * 1024 * 4096)  # in layers, of which FP8 takes a byte each


@pytest.mark.long
@pytest.mark.needs("transformer_engine")
def test_frozen_weights_in_fp8_are_kept_in_one_layout() -> None:
    """Their transposes, of equal size, are created again for the gradient of the layer's input."""
    both, one_way = (
        run(str(RECIPES / recipe), *FP8, "--lora", "16", world_size=2, steps=2)
        for recipe in ("megatron_gpt.py", "megatron_untransposed.py")
    )
    kept = [sum(job.held_after_step().values()) for job in (both, one_way)]
    assert kept[0] - kept[1] == pytest.approx(WEIGHTS, rel=0.05)  # blocks are of whole MiB


@pytest.mark.long
@pytest.mark.needs("transformer_engine")
def test_a_model_created_on_the_meta_device_is_sharded_like_any_other() -> None:
    """FSDP materialises modules one by one; each of eight ranks stores the same bytes after a step."""
    split = ("--fsdp", "--overlap", "--gradients", "model")
    whole, deferred = (
        run(str(RECIPES / recipe), *FP8, *split, world_size=8, steps=2)
        for recipe in ("megatron_gpt.py", "megatron_deferred.py")
    )
    kept = [sum(job.held_after_step().values()) for job in (whole, deferred)]
    assert kept[0] == pytest.approx(kept[1], rel=0.02)


@pytest.mark.long
@pytest.mark.needs("megatron.core")
def test_megatron_deepspeed_s_fused_functions_are_one_kernel_each_without_torch_compile() -> None:
    """Two layers; bias and GELU read and write the FFN's activation, and backward its gradient."""
    compiled, scripted = (
        megatron(recipe, "--attention", "unfused", "--precision", "fp16")
        for recipe in ("megatron_gpt.py", "megatron_scripted.py")
    )
    assert compiled.gemm_flops() == scripted.gemm_flops()
    kernels = scripted.signatures(scripted.work())
    assert not [one for one in kernels if isinstance(one, Kernel | Fused) and "adam" not in one.name.lower()]
    activation, bias = 2 * 256 * 1024, 2 * 1024
    moved = {one.operator: (one.bytes_read, one.bytes_written) for one in kernels if isinstance(one, Elementwise)}
    assert moved["megatron_scripted::bias_gelu"] == (activation + bias, activation)
    assert moved["megatron_scripted::bias_gelu_back"] == (2 * activation + bias, activation)
    softmax = [one.operator for one in kernels if isinstance(one, Softmax)]
    assert softmax[:2] == 2 * ["aten::_softmax"]
    assert softmax[2:] == 2 * ["aten::_softmax_backward_data"]


@pytest.mark.long
@pytest.mark.needs("peft")
def test_only_a_decoder_s_adapters_are_updated_and_layers_are_recomputed() -> None:
    """Queries and values of two layers, two micro-batches a step; moments in fp32, as PEFT makes adapters."""
    layers, hidden, ffn, words, rank, tokens = 2, 256, 512, 1024, 8, 128
    job = run(
        *(str(RECIPES / "single_gpu_finetune.py"), "--model", "llama", "--batch", "1", "--sequence", str(tokens)),
        *("--shapes", f"{layers},{hidden},{ffn},4,4,{words}", "--precision", "half", "--checkpoint"),
        *("--lora", str(rank), "--lora-targets", "q_proj,v_proj", "--accumulate", "2"),
        gpu="a100-80gb",
        steps=2,
    )
    adapters = layers * 2 * rank * 2 * hidden
    updates = [one for one in job.signatures(job.work(Phase.OPTIMIZER)) if isinstance(one, Optimizer)]
    assert sum(one.elements for one in updates if one.operator == "aten::_foreach_addcdiv_") == adapters
    assert job.held_after_step()[Category.OPTIMIZER_STATE] == pytest.approx(2 * 4 * adapters, rel=0.01)
    layer = 4 * hidden**2 + 3 * hidden * ffn
    assert job.gemm_flops(Phase.FORWARD) == 2 * 2 * tokens * (layers * layer + words * hidden + adapters)
    assert job.gemm_flops(Phase.RECOMPUTE) >= 2 * 2 * tokens * layers * (layer - hidden * ffn)


@pytest.mark.long
@pytest.mark.needs("deepspeed")
@pytest.mark.parametrize("stage", marked([0, 2, 3], ["0", "2"]))
def test_deepspeed_s_engine_updates_a_rank_s_share_with_one_kernel(stage: int) -> None:
    """A GPT with tied words on four ranks in fp16; no overflow is seen, so no step is skipped."""
    layers, hidden, words, tokens, ranks = 2, 256, 1024, 128, 4
    job = run(
        *(str(RECIPES / "deepspeed_gpt.py"), "--model", "gpt", "--batch", "1", "--sequence", str(tokens)),
        *("--shapes", f"{layers},{hidden},{4 * hidden},4,4,{words}", "--precision", "fp16", "--zero", str(stage)),
        "--checkpoint",
        gpu="a100-80gb",
        world_size=ranks,
        steps=2,
    )
    parameters = layers * (12 * hidden**2 + 13 * hidden) + (words + tokens + 2) * hidden
    share = parameters if stage == 0 else parameters / ranks
    updates = [one for one in job.signatures(job.work(Phase.OPTIMIZER)) if isinstance(one, Optimizer)]
    (update,) = (one for one in updates if one.operator == "aten::_fused_adamw_")
    assert update.elements == pytest.approx(share, rel=0.01)
    assert job.gemm_flops(Phase.FORWARD) == 2 * tokens * (layers * 12 * hidden**2 + words * hidden)
    scattered = "reduce_scatter" if stage == 3 else "all_reduce"
    assert job.collective_bytes(scattered) == pytest.approx(2 * parameters, rel=0.01)


@pytest.mark.long
@pytest.mark.needs("deepspeed", "peft")
def test_deepspeed_reduces_and_updates_adapters_only() -> None:
    """ZeRO-2 on two ranks; the engine keeps adapters in bf16, like all weights."""
    layers, hidden, rank, ranks = 2, 256, 8, 2
    job = run(
        *(str(RECIPES / "deepspeed_gpt.py"), "--model", "llama", "--batch", "1", "--sequence", "128", "--zero", "2"),
        *("--shapes", f"{layers},{hidden},512,4,4,1024", "--lora", str(rank), "--lora-targets", "q_proj,v_proj"),
        gpu="a100-80gb",
        world_size=ranks,
        steps=2,
    )
    adapters = layers * 2 * rank * 2 * hidden
    updates = [one for one in job.signatures(job.work(Phase.OPTIMIZER)) if isinstance(one, Optimizer)]
    assert [one.elements for one in updates if one.operator == "aten::_fused_adamw_"] == [adapters // ranks]
    assert sum(one.bytes for one in job.collectives() if one.kind == "all_reduce" and one.bytes > 8) == 2 * adapters


@pytest.mark.long
@pytest.mark.needs("nemo_automodel", "transformer_engine")
def test_automodel_s_experts_get_tokens_round_robin() -> None:
    """Two layers on four ranks with four experts each; each token goes to three consecutive ones."""
    tokens, hidden, ffn, layers, experts, top, ranks = 2 * 128, 256, 128, 2, 16, 3, 4
    sizes = {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": 512,
        "moe_intermediate_size": ffn,
        "num_experts": experts,
        "num_experts_per_tok": top,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "vocab_size": 1024,
    }
    job = run(
        *(str(RECIPES / "automodel_experts.py"), "--config", "Qwen3MoeConfig", "--set", json.dumps(sizes)),
        *("--architecture", "Qwen3MoeForCausalLM", "--sequence", "128", "--batch", "2", "--accumulate", "2"),
        *("--expert-parallel", str(ranks), "--checkpoint", "--gathers-once"),
        world_size=ranks,
        steps=2,
    )
    sent = [one for one in job.collectives() if one.kind == "dispatch"]
    assert [one.bytes for one in sent] == 3 * 2 * layers * [2 * tokens * hidden]  # forward, again, and backward
    assert {one.routed.spread for one in sent if one.routed} == {(1.5, 1.25, 1.0)}
    grouped = [one for one in job.signatures(job.work(Phase.FORWARD)) if isinstance(one, GroupedGemm)]
    assert len(grouped) == 2 * 2 * layers
    assert sum(one.flops for one in grouped) == 2 * layers * 2 * tokens * top * 3 * hidden * ffn
