"""From a case to the recipe that builds it, or to the reason why none does."""

from __future__ import annotations

import pytest

from presim.studies.validation.cases import Case
from presim_study.planners import plan
from support.plans import ELSEWHERE, refusal

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
        ({"gpu": "TPU v5"}, f"the hardware catalogue has no GPU 'TPU v5'; {ELSEWHERE}"),
        ({"gpu": ""}, "gpu is empty"),
        ({"n_layers": ""}, "n_layers is empty"),
        ({"precision": "int8"}, "the recipe computes in bf16 or float8, and the case in 'int8'"),
        ({"framework": "Composer", "tp": "1", "pp": "4"}, "the recipe has no PP, and the case has pp = 4"),
        (
            {"gpu": "AMD Instinct MI325X"},
            "AMD Instinct MI325X is AMD's: what runs on it is ROCm's, which is not emulated",
        ),
        ({"pp": "8", "n_gpus": "4", "tp": "1", "model": "Llama3.1-8B"}, "4 GPUs are no multiple of tp x pp x cp = 8"),
        ({"n_gpus": ""}, "n_gpus = 1 is less than what one replica takes: tp x pp x cp"),
        ({"act_ckpt": "not stated"}, "act_ckpt = 'not stated' says neither none, selective nor full"),
        ({"sharding": "HSDP"}, "sharding = 'HSDP' does not say how many replicas: HSDP 4x8"),
        ({"sharding": "SimpleFSDP"}, "the recipe shards with FSDP2, and the case with SimpleFSDP"),
        ({"act_ckpt": "see recipe"}, "act_ckpt = 'see recipe' says neither none, selective nor full"),
        ({"optimizer": "AdamW 8-bit"}, "the recipes' optimizers are Adam and Muon, and the case's is AdamW 8-bit"),
        ({"optimizer": "muon"}, "the recipe's optimizer is Adam, and the case's is muon"),
        ({"model": "DeepSeek-V3.2 671B", "pp": "2", "tp": "4"}, "the recipe has no model 'DeepSeek-V3.2 671B'"),
        ({"global_batch": "8000 tokens"}, "global_batch = '8000 tokens' is no multiple of seq_len = 8192"),
        (
            {"framework": "Composer", "tp": "1", "sharding": "HYBRID_SHARD"},
            "the recipe shards over all GPUs, and the case's sharding is 'HYBRID_SHARD'",
        ),
        (
            {"framework": "Composer", "tp": "1", "precision": "amp_fp16"},
            "the recipe computes in bf16 or FP8, and the case in 'amp_fp16'",
        ),
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


def test_fp8_of_llm_foundry_needs_transformer_engine(installed: set[str]) -> None:
    row = {**LLAMA, "framework": "llm-foundry", "precision": "amp_fp8", "tp": "1", "act_ckpt": "none"}
    row |= {"global_batch": "128"}
    assert "--fp8" in plan(Case(row)).args
    installed.discard("transformer_engine")
    assert refusal(row) == "transformer_engine is not installed: make frameworks"


def test_a_run_of_early_2025_has_the_attention_of_its_time() -> None:
    """A row without a date is taken for a later one."""
    assert plan(Case({**LLAMA, "date": "2025-06"})).recipe == "llama_torchtitan.py"
    assert {plan(Case({**LLAMA, "date": date})).recipe for date in ("2025-11-02", "")} == {"llama_fsdp2.py"}


def test_asynchronous_tensor_parallelism_is_asked_of_the_recipe() -> None:
    assert "--async-tensor-parallel" in plan(Case({**LLAMA, "other": "async TP", "compile": "True"})).args
    assert "--async-tensor-parallel" not in plan(Case({**LLAMA, "other": "vanilla TP"})).args


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n_gpus": "", "dp": "8"}, "--tensor-parallel 8 --accumulate 2"),
        ({"micro_batch": "", "grad_accum": "2"}, "--batch 2"),
        ({"seq_len": "8k"}, "--sequence 8192"),
        ({"seq_len": "8,192"}, "--sequence 8192"),
        ({"act_ckpt": "True"}, "--checkpoint full"),
        ({"act_ckpt": "no"}, "--checkpoint none"),
        ({"act_ckpt": "per-op SAC"}, "--checkpoint selective"),
        ({"seq_len": "8192 (packed)"}, "--sequence 8192"),
        ({"pp": "n/a", "vp": "-", "cp": "None"}, "--layers 32"),
        ({"global_batch": "32 sequences"}, "--accumulate 2"),
        ({"global_batch": "256k tokens"}, "--accumulate 2"),
        ({"framework": "Composer", "tp": "1", "act_ckpt": "none", "global_batch": "128"}, "--sharding full"),
        ({"precision": "bfloat16"}, "--checkpoint selective"),
        ({"precision": "FP8 rowwise"}, "--float8 rowwise"),
        ({"gpu": "NVIDIA H100 80GB HBM3"}, "--layers 32"),
        ({"gpu": "8x H100 SXM"}, "--layers 32"),
        ({"compile": "yes (per block)"}, "--compile"),
        ({"precision": "fp32 parameters, bf16 compute"}, "--layers 32"),
        ({"micro_batch": "", "other": "local batch size: 2"}, "--batch 2 --tensor-parallel 8 --accumulate 2"),
        ({"micro_batch": ""}, "--batch 4 --tensor-parallel 8 --accumulate 1"),
    ],
)
def test_what_other_cells_or_spellings_say_counts(change: dict[str, str], words: str, installed: set[str]) -> None:
    assert words in " ".join(plan(Case({**LLAMA, **change})).args)


def test_a_llama_that_is_only_named_has_its_published_shapes() -> None:
    shapes = dict.fromkeys(("n_layers", "hidden", "ffn", "n_heads", "n_kv_heads", "vocab"), "")
    named = plan(Case({**LLAMA, **shapes, "model": "meta-llama/Llama-3.1-8B"}))
    assert named.args == plan(Case(LLAMA)).args


def test_submissions_to_mlperf_are_megatrons_whatever_their_containers_are_called(installed: set[str]) -> None:
    row = {**LLAMA, "framework": "PyTorch", "source": "github:mlcommons/training_results_v5.1:x/results/y/"}
    assert plan(Case({**row, "model": "Llama3.1-8B"})).recipe == "megatron_gpt.py"


@pytest.mark.parametrize("column", ["tp", "pp", "cp", "dp", "n_gpus", "gpus_per_node", "micro_batch"])
@pytest.mark.parametrize("framework", ["torchtitan", "Megatron-LM", "NeMo AutoModel", "llm-foundry", "torchtune"])
def test_none_of_what_a_run_has_one_of_is_refused_in_words(column: str, framework: str, installed: set[str]) -> None:
    row = {**LLAMA, "framework": framework, "model": "Llama3.1-8B", column: "0"}
    assert refusal(row) == f"{column} = '0' must be at least 1"


@pytest.mark.parametrize("column", ["vp", "ep", "etp"])
@pytest.mark.parametrize("said", ["0", "-", "n/a", "N/A", "None", "1", "1.0"])
def test_ways_to_write_that_there_are_no_virtual_stages_or_experts_mean_nothing(
    column: str, said: str, installed: set[str]
) -> None:
    row = {**LLAMA, "framework": "Megatron-LM", "model": "Llama3.1-8B", "etp": ""}
    assert plan(Case({**row, column: said})) == plan(Case({**row, column: ""}))


def test_what_a_count_counts_may_stand_behind_it(installed: set[str]) -> None:
    assert plan(Case({**LLAMA, "n_gpus": f"{LLAMA['n_gpus']} GPUs"})) == plan(Case(LLAMA))


@pytest.mark.parametrize("framework", ["NeMo RL", "verl", "OpenRLHF"])
def test_a_step_of_reinforcement_learning_is_no_recipe_s(framework: str, installed: set[str]) -> None:
    reason = "a step of reinforcement learning generates and scores, too, which no recipe does"
    assert refusal({**LLAMA, "framework": framework}) == reason
