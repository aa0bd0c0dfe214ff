"""Rows of Megatron's family become runs of its recipes, or say why they cannot."""

from __future__ import annotations

import pytest

from presim.studies.validation.cases import CannotBuildError, Case
from presim_study.plan import Repeats
from presim_study.planners import plan
from support.plans import arguments, refusal

pytestmark = pytest.mark.usefixtures("installed")
MEGATRON = {
    "id": "x", "framework": "Megatron-LM", "model": "llama", "gpu": "H100", "n_gpus": "64", "gpus_per_node": "8",
    "n_layers": "32",
    "hidden": "4096", "ffn": "14336", "n_heads": "32", "n_kv_heads": "8", "vocab": "128256", "precision": "bf16",
    "seq_len": "8192", "micro_batch": "1", "global_batch": "32", "tp": "8", "act_ckpt": "none",
}  # fmt: skip
BRIDGE = {**MEGATRON, "framework": "Megatron-Bridge (Megatron-Core)", "gpu": "GB200 (NVL72)", "gpus_per_node": "72"}


def test_a_pipeline_of_megatron_captures_one_rank_a_stage() -> None:
    planned = plan(Case({**MEGATRON, "tp": "4", "pp": "4", "global_batch": "8"}))
    assert planned.ranks == (0, 16, 32, 48)
    assert "--engine local" in " ".join(planned.args)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"cp": "2"}, "context parallelism"),
        ({"precision": "FP8", "framework": "NeMo"}, "FP8"),
        ({"n_experts": "8"}, "experts"),
        ({"other": "transformer-impl=transformer_engine"}, "its layers"),
        ({"framework": "Megatron-Bridge"}, "its layers"),
    ],
)
def test_what_transformer_engine_computed_needs_it(installed: set[str], change: dict[str, str], reason: str) -> None:
    installed.discard("transformer_engine")
    assert refusal({**MEGATRON, **change}) == (
        f"the case has {reason} by Transformer Engine, which is not installed: make frameworks"
    )


def test_fp8_of_tuned_runs_takes_transformer_engine_and_its_recipe() -> None:
    case = {**MEGATRON, "framework": "Megatron-Bridge", "precision": "FP8-MX", "cp": "2", "gpu": "B200"}
    words = arguments(case)
    assert "--engine te" in words
    assert "--context-parallel 2" in words
    assert "--gradients model" in words
    assert "--set fp8='e4m3'" in words
    assert "--set fp8_recipe='mxfp8'" in words


def test_transformer_engine_is_taken_where_the_case_needs_it() -> None:
    local = {**MEGATRON, "other": "transformer-impl=local"}
    assert "--engine local" in arguments(local)
    assert "--engine te" in arguments({**local, "n_experts": "8", "ep": "8"})


def test_scores_scaled_by_layer_are_widened_and_scaled_by_megatron_s_own_layers_only() -> None:
    local = {**MEGATRON, "other": "transformer-impl=local;apply-query-key-layer-scaling=True"}
    assert "--set apply_query_key_layer_scaling=True" in arguments(local)
    experts = arguments({**local, "n_experts": "2", "topk": "1"})  # of Transformer Engine, which would raise an error
    assert "--set attention_softmax_in_fp32=True" in experts
    assert "apply_query_key_layer_scaling" not in experts


@pytest.mark.parametrize(
    ("change", "recipe"),
    [
        ({}, "megatron_gpt.py"),
        ({"sharding": "FSDP group 64"}, "megatron_deferred.py"),
        ({"sharding": "FSDP group 64", "framework": "NVIDIA NeMo"}, "megatron_gpt.py"),
        ({"source": "mlcommons/training_results_v4.0:x", "model": "Llama2-70B [LoRA]", "gpu": "H200",
          "global_batch": "8", "n_gpus": "8"}, "megatron_untransposed.py"),
        ({"model": "Nemotron_3_Super", "gpu": "B200", "precision": "MXFP8"}, "megatron_predicting_mxfp8.py"),
        ({"model": "Nemotron_3_Super", "gpu": "B200", "precision": "BF16"}, "megatron_predicting.py"),
    ],
)  # fmt: skip
def test_what_would_not_fit_has_a_recipe_of_its_own(change: dict[str, str], recipe: str) -> None:
    assert plan(Case({**BRIDGE, "n_gpus": "64", "global_batch": "64", **change})).recipe == recipe


def test_a_rack_is_hosts_of_four_in_equal_parts() -> None:
    cluster = plan(Case({**BRIDGE, "n_gpus": "256", "global_batch": "256"})).cluster
    assert (cluster.nodes, cluster.gpus_per_node, cluster.domain_size) == (64, 4, 64)
    odd = plan(Case({**BRIDGE, "gpu": "H100", "global_batch": "256"})).cluster
    assert (odd.nodes, odd.gpus_per_node) == (8, 8)


def test_of_many_micro_batches_two_steps_with_fewer_are_captured() -> None:
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
def test_a_tuned_run_is_built_as_its_recipe_says(change: dict[str, str], expected: str) -> None:
    assert expected in arguments({**BRIDGE, "global_batch": "256", "tp": "1", **change})


def test_a_precision_that_names_two_is_not_chosen_from() -> None:
    with pytest.raises(CannotBuildError, match="does not say which"):
        plan(Case({**BRIDGE, "global_batch": "256", "precision": "FP4 or FP8 (both configs shipped)"}))


def test_fp32_keeps_megatrons_own_attention_where_accelerate_ran_it() -> None:
    row = {**MEGATRON, "framework": "HF accelerate + Megatron-LM plugin", "precision": "fp32 (no TF32: sgemm kernels)"}
    words = arguments(row)
    assert "--precision fp32" in words
    assert "--attention unfused" in words


@pytest.mark.parametrize(("said", "padded"), [("", "129024"), ("make-vocab-size-divisible-by=3232", "129280")])
def test_vocabularies_are_padded_as_the_case_says(said: str, padded: str) -> None:
    """To a multiple of 128, or of what is said, on each of eight ranks."""
    assert f"--vocab {padded}" in arguments({**MEGATRON, "other": said})


def test_the_split_of_experts_may_stand_in_the_name() -> None:
    row = {**MEGATRON, "model": "moe/gpt3_te_8experts_etp1_ep4", "n_experts": "8", "ep": "4", "tp": "2"}
    assert "--expert-tensor-parallel 1" in arguments(row)


def test_only_the_measured_rank_runs_for_a_row_of_memory() -> None:
    row = {**MEGATRON, "tp": "4", "pp": "4", "global_batch": "8", "rank_or_stage": "last rank, last PP stage"}
    assert plan(Case({**row, "step_time_s": ""})).ranks == (48,)
    assert plan(Case({**row, "step_time_s": "1.5"})).ranks == (0, 16, 32, 48)
    assert plan(Case({**row, "step_time_s": "", "rank_or_stage": "rank 17"})).ranks == (16,)
    with pytest.raises(CannotBuildError, match="rank 64 was measured, of 64"):
        plan(Case({**row, "step_time_s": "", "rank_or_stage": "rank 64"}))


def test_fp16_sums_gradients_in_fp16_as_megatron_does() -> None:
    assert "--gradients model" in arguments({**MEGATRON, "precision": "fp16"})
    assert "--gradients" not in arguments(MEGATRON)
    assert "--gradients model" in arguments({**MEGATRON, "other": "grad-reduce-in-bf16=True"})


def test_megatron_needs_the_number_of_gpus() -> None:
    assert refusal({**MEGATRON, "n_gpus": ""}) == "n_gpus is empty"


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("mimo/mimo_vlm", "a model of images and text"),
        ("multimodal-llava/llava", "a model of images and text"),
        ("bert_large", "an encoder outside Megatron-LM's own tests"),
        ("Nemotron_9_Hyper", "a hybrid whose layers are neither given nor known here"),
        ("gpt/gpt_grpo_tp4", "reinforcement learning, whose steps generate and score, too"),
    ],
)
def test_other_families_of_megatron_are_named(model: str, kind: str) -> None:
    assert refusal({**MEGATRON, "model": model}) == f"the recipe builds decoders, and the case's {model!r} is {kind}"


@pytest.mark.parametrize("model", ["Nemotron-8B", "Nemotron-22B", "Nemotron-340B", "Nemotron4-15B", "Nemotron-4 340B"])
def test_dense_nemotrons_have_squared_relu_whatever_their_generation_is_called(model: str) -> None:
    shapes = dict.fromkeys(("n_layers", "hidden", "ffn", "n_heads", "n_kv_heads", "vocab"), "")
    planned = plan(Case({**MEGATRON, **shapes, "framework": "NeMo", "model": model}))
    assert planned.recipe == "megatron_variants.py"
    assert "--squared-relu" in planned.args
    assert "--vocab 256000" in " ".join(planned.args)


@pytest.mark.parametrize(("said", "predictors"), [("(w/o MTP)", 0), ("(w/ MTP)", 1), ("", 1), ("(without MTP)", 0)])
def test_a_table_says_in_brackets_that_further_tokens_are_not_predicted(said: str, predictors: int) -> None:
    shapes = dict.fromkeys(("n_layers", "hidden", "ffn", "n_heads", "n_kv_heads", "vocab"), "")
    split = {"tp": "1", "pp": "4", "vp": "4", "ep": "64", "n_gpus": "256", "global_batch": "4096"}
    words = arguments({**BRIDGE, **shapes, **split, "model": f"DeepSeekV3 {said}".strip()})
    assert ("mtp_num_layers=1" in words) == bool(predictors)
    assert ("mL'" in words) == bool(predictors)


def test_megatron_deepspeed_scripts_what_megatron_compiles() -> None:
    recipes = [plan(Case({**MEGATRON, "framework": name})).recipe for name in ("Megatron-LM", "Megatron-DeepSpeed")]
    assert recipes == ["megatron_gpt.py", "megatron_scripted.py"]


@pytest.mark.parametrize(("table", "again"), [("ground_truth_single.csv", False), ("ground_truth_multi.csv", True)])
def test_runs_of_vtrain_on_one_node_computed_nothing_again(table: str, again: bool) -> None:
    case = {**MEGATRON, "framework": "Megatron-DeepSpeed", "precision": "fp16", "act_ckpt": "full (all layers)"}
    assert ("--checkpoint" in arguments({**case, "source": f"github:VIA-Research/vTrain:data/{table}"})) == again


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sharding": "ZeRO-1"}, "--distributed-optimizer"),
        ({"act_ckpt": "Full"}, "--checkpoint"),
        (
            {"act_ckpt": "full", "other": "recompute-method=block;recompute-num-layers=4"},
            "--set recompute_method='block' --set recompute_num_layers=4",
        ),
    ],
)
def test_spellings_of_megatrons_options_count(change: dict[str, str], words: str) -> None:
    assert words in arguments({**MEGATRON, **change})


def test_a_later_stage_of_zero_is_refused() -> None:
    assert (
        refusal({**MEGATRON, "sharding": "ZeRO-3"})
        == "Megatron's optimizer has ZeRO's first stage, and the case 'ZeRO-3'"
    )


@pytest.mark.parametrize(
    ("said", "recipe"),
    [
        ("FP8", "tensorwise"),
        ("fp8_cs", "tensorwise"),
        ("FP8 (current scaling)", "tensorwise"),
        ("FP8-SC", "blockwise"),
        ("fp8_sc", "blockwise"),
        ("FP8 blockwise", "blockwise"),
        ("FP8-DS", "delayed"),
        ("FP8 (delayed scaling)", "delayed"),
        ("MXFP8", "mxfp8"),
        ("fp8_mx", "mxfp8"),
    ],
)
def test_ways_to_write_how_fp8_is_scaled(said: str, recipe: str) -> None:
    row = {**BRIDGE, "gpu": "B200", "gpus_per_node": "8", "tp": "1", "precision": said, "global_batch": "64"}
    assert f"fp8_recipe='{recipe}'" in arguments(row)


@pytest.mark.parametrize(
    ("change", "unfused"),
    [
        ({"framework": "Megatron-LM (Korthikanti et al.)"}, True),
        ({"framework": "Megatron-LM (SC21)"}, True),
        ({"source": "calculon quoting arXiv 2205.05198 Fig 1"}, True),
        ({"date": "2022-05"}, True),
        ({"date": "2024-07-15"}, False),
        ({}, False),
    ],
)
def test_megatron_of_before_2023_had_no_fused_attention(change: dict[str, str], unfused: bool) -> None:
    assert ("--attention unfused" in arguments({**MEGATRON, **change})) == unfused


def test_groups_of_experts_come_out_even() -> None:
    case = {**MEGATRON, "n_gpus": "16", "tp": "2", "pp": "4", "n_experts": "8", "topk": "2", "ep": "8", "etp": "1"}
    assert refusal(case) == "16 GPUs are no multiple of ep x etp x pp = 32"
    assert refusal({**case, "etp": "", "ep": "4"}) == "16 GPUs are no multiple of ep x etp x pp = 32"  # as tp
