"""From a case to the recipe that builds it, or to the reason why none does."""

from __future__ import annotations

import pytest

from presim.validation.cases import CannotBuildError, Case
from presim.validation.plan import Repeats
from presim.validation.planners import plan
from support.plans import arguments, refusal

LLAMA = {
    "id": "x", "framework": "torchtitan", "gpu": "H100", "n_gpus": "64", "gpus_per_node": "8", "n_layers": "32",
    "hidden": "4096", "ffn": "14336", "n_heads": "32", "n_kv_heads": "8", "vocab": "128256", "precision": "bf16",
    "seq_len": "8192", "micro_batch": "2", "global_batch": "32", "tp": "8", "act_ckpt": "selective per op",
}  # fmt: skip


def test_a_torchtitan_row_becomes_a_run_of_the_fsdp2_recipe() -> None:
    planned = plan(Case(LLAMA))
    words = " ".join(planned.args)
    assert planned.recipe == "llama_fsdp2.py"
    assert (planned.cluster.gpu.id, planned.cluster.nodes, planned.cluster.gpus_per_node) == ("h100-sxm", 8, 8)
    assert "--tensor-parallel 8" in words
    assert "--accumulate 2" in words
    assert "--checkpoint selective" in words


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"framework": "JAX"}, "no recipe for the framework 'JAX'"),
        ({"gpu": "TPU v5"}, "the hardware catalogue has no GPU 'TPU v5'"),
        ({"gpu": ""}, "gpu is not given"),
        ({"n_layers": ""}, "n_layers is not given"),
        ({"precision": "int8"}, "the recipe computes in bf16 or float8, and the case in 'int8'"),
        ({"framework": "Composer", "tp": "1", "pp": "4"}, "the recipe has no PP, and the case has pp = 4"),
        ({"act_ckpt": "see recipe"}, "act_ckpt = 'see recipe' says neither none, selective nor full"),
        ({"n_gpus": "12"}, "12 GPUs do not fill nodes of 8"),
        (
            {"global_batch": "33"},
            "global_batch = 33 is no multiple of micro_batch x data parallel = 2 x 8",
        ),
        ({"framework": "HF transformers", "n_gpus": "1", "tp": "1"}, "the recipe has no model ''"),
    ],
)
def test_a_case_that_cannot_be_built_says_why(change: dict[str, str], reason: str) -> None:
    assert refusal({**LLAMA, **change}) == reason


def test_memory_alone_needs_no_global_batch() -> None:
    planned = plan(Case({**LLAMA, "global_batch": "", "grad_accum": "4"}))
    assert "--accumulate 4" in " ".join(planned.args)


def test_a_single_gpu_row_names_model_precision_and_attention() -> None:
    row = {
        "id": "n", "framework": "HF transformers eager attention", "gpu": "H100", "model": "gpt2_large",
        "precision": "fp32 (no TF32)", "seq_len": "1024", "micro_batch": "4", "act_ckpt": "none",
        "note": "forward+backward only, no optimizer",
    }  # fmt: skip
    assert plan(Case(row)).args == (
        *("--model", "gpt2-large", "--batch", "4", "--sequence", "1024", "--image", "0", "--precision", "full"),
        *("--attention", "eager", "--optimizer", "none"),
    )


MEGATRON = {**LLAMA, "framework": "Megatron-LM", "model": "llama", "micro_batch": "1", "act_ckpt": "none"}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of the packages that planners are to find."""
    names = {"megatron"}
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if name in names else None)
    return names


def test_a_pipeline_of_megatron_captures_one_rank_a_stage(installed: set[str]) -> None:
    planned = plan(Case({**MEGATRON, "tp": "4", "pp": "4", "global_batch": "8"}))
    assert planned.ranks == (0, 16, 32, 48)
    assert "--engine local" in " ".join(planned.args)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"cp": "2"}, "context parallelism"),
        ({"precision": "FP8", "framework": "NeMo"}, "FP8"),
        ({"n_experts": "8"}, "experts"),
    ],
)
def test_what_only_transformer_engine_computes_needs_it(
    installed: set[str], change: dict[str, str], reason: str
) -> None:
    assert refusal({**MEGATRON, **change}) == (
        f"the case has {reason}, which Megatron computes with Transformer Engine, and that is not installed"
    )


def test_fp8_of_tuned_runs_takes_transformer_engine_and_its_recipe(installed: set[str]) -> None:
    installed.add("transformer_engine")
    case = {**MEGATRON, "framework": "Megatron-Bridge", "precision": "FP8-MX", "cp": "2", "gpu": "B200"}
    words = arguments(case)
    assert "--engine te" in words
    assert "--context-parallel 2" in words
    assert "--gradients model" in words
    assert "--set fp8='e4m3'" in words
    assert "--set fp8_recipe='mxfp8'" in words


def test_transformer_engine_is_taken_where_the_case_needs_it(installed: set[str]) -> None:
    installed.add("transformer_engine")
    local = {**MEGATRON, "other": "transformer-impl=local"}
    assert "--engine local" in arguments(local)
    assert "--engine te" in arguments({**local, "n_experts": "8", "ep": "8"})


BRIDGE = {**MEGATRON, "framework": "Megatron-Bridge (Megatron-Core)", "gpu": "GB200 (NVL72)", "gpus_per_node": "72"}


def test_a_rack_is_hosts_of_four_in_equal_parts(installed: set[str]) -> None:
    installed.add("transformer_engine")
    cluster = plan(Case({**BRIDGE, "n_gpus": "256", "global_batch": "256"})).cluster
    assert (cluster.nodes, cluster.gpus_per_node, cluster.domain_size) == (64, 4, 64)
    odd = plan(Case({**BRIDGE, "gpu": "H100", "global_batch": "256"})).cluster
    assert (odd.nodes, odd.gpus_per_node) == (8, 8)


def test_of_many_micro_batches_two_steps_with_fewer_are_captured(installed: set[str]) -> None:
    installed.add("transformer_engine")
    many = plan(Case({**BRIDGE, "tp": "2", "pp": "4", "vp": "8", "global_batch": "256"}))
    assert "--accumulate 4,8,12" in " ".join(many.args)
    assert (many.repeats, many.steps) == (Repeats(8, 12, 32), 3)
    few = plan(Case({**BRIDGE, "tp": "2", "pp": "4", "vp": "8", "global_batch": "64"}))
    assert "--accumulate 8" in " ".join(few.args)
    assert few.repeats is None


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"n_layers": "126", "pp": "8", "vp": "4"}, "--set account_for_embedding_in_pipeline_split=True"),
        ({"n_layers": "", "n_heads": "", "model": "Kimi_K2", "pp": "4"}, "--set pipeline_model_parallel_layout='Et"),
        ({"n_layers": "", "n_heads": "", "model": "GPT OSS 120B"}, "--recompute layernorm,moe_act"),
        ({"precision": "NVFP4"}, "--set fp4='e2m1'"),
        ({"n_layers": "", "n_heads": "", "model": "Qwen3_30B_a3B", "ep": "8", "tp": "2"}, "--expert-tensor-parallel 1"),
        ({"precision": "FP8"}, "--set fp8_recipe='tensorwise'"),
        ({"precision": "FP8", "framework": "NeMo (Megatron-Core)"}, "--set fp8_recipe='delayed'"),
        ({"precision": "FP8 subchannel", "gpu": "H100"}, "--set fp8_recipe='blockwise'"),
        ({"model": "LLAMA3_70B [LoRA Performance]"}, "--lora 16 --lora-targets linear_qkv"),
        ({"sharding": "FSDP group 64"}, "--fsdp"),
    ],
)
def test_a_tuned_run_is_built_as_its_recipe_says(installed: set[str], change: dict[str, str], expected: str) -> None:
    installed.add("transformer_engine")
    assert expected in arguments({**BRIDGE, "global_batch": "256", "tp": "1", **change})


def test_a_precision_that_names_two_is_not_chosen_from(installed: set[str]) -> None:
    installed.add("transformer_engine")
    with pytest.raises(CannotBuildError, match="does not say which"):
        plan(Case({**BRIDGE, "global_batch": "256", "precision": "FP4 or FP8 (both configs shipped)"}))


def test_fp32_keeps_megatrons_own_attention_where_accelerate_ran_it(installed: set[str]) -> None:
    row = {**MEGATRON, "framework": "HF accelerate + Megatron-LM plugin", "precision": "fp32 (no TF32: sgemm kernels)"}
    words = arguments(row)
    assert "--precision fp32" in words
    assert "--attention unfused" in words


def test_the_split_of_experts_may_stand_in_the_name(installed: set[str]) -> None:
    installed.add("transformer_engine")
    row = {**MEGATRON, "model": "moe/gpt3_te_8experts_etp1_ep4", "n_experts": "8", "ep": "4", "tp": "2"}
    assert "--expert-tensor-parallel 1" in arguments(row)


def test_fp8_of_llm_foundry_needs_transformer_engine(installed: set[str]) -> None:
    row = {**LLAMA, "framework": "llm-foundry", "precision": "amp_fp8", "tp": "1", "act_ckpt": "none"}
    row |= {"global_batch": "128"}
    with pytest.raises(CannotBuildError):
        plan(Case(row))
    installed.add("transformer_engine")
    assert "--fp8" in plan(Case(row)).args


def test_asynchronous_tensor_parallelism_is_asked_of_the_recipe() -> None:
    assert "--async-tensor-parallel" in plan(Case({**LLAMA, "other": "async TP", "compile": "True"})).args
    assert "--async-tensor-parallel" not in plan(Case({**LLAMA, "other": "vanilla TP"})).args


def test_only_the_measured_rank_runs_for_a_row_of_memory(installed: set[str]) -> None:
    row = {**MEGATRON, "tp": "4", "pp": "4", "global_batch": "8", "rank_or_stage": "last rank, last PP stage"}
    assert plan(Case({**row, "step_time_s": ""})).ranks == (48,)
    assert plan(Case({**row, "step_time_s": "1.5"})).ranks == (0, 16, 32, 48)
    assert plan(Case({**row, "step_time_s": "", "rank_or_stage": "rank 17"})).ranks == (16,)
    with pytest.raises(CannotBuildError, match="rank 64 was measured, of 64"):
        plan(Case({**row, "step_time_s": "", "rank_or_stage": "rank 64"}))


def test_fp16_sums_gradients_in_fp16_as_megatron_does(installed: set[str]) -> None:
    assert "--gradients model" in arguments({**MEGATRON, "precision": "fp16"})
    assert "--gradients" not in arguments(MEGATRON)


def test_megatron_needs_the_number_of_gpus(installed: set[str]) -> None:
    assert refusal({**MEGATRON, "n_gpus": ""}) == "n_gpus is not given"


def test_other_families_of_megatron_are_named(installed: set[str]) -> None:
    assert (
        refusal({**MEGATRON, "model": "mimo/mimo_vlm"})
        == "the recipe builds decoders, and the case is of the kind 'mimo'"
    )
