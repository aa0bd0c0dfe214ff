"""torchtitan's published runs become runs of PyTorch's FSDP2 alone or of its own trainer."""

from __future__ import annotations

import pytest

from presim.studies.validation.cases import CannotBuildError, Case
from presim_study.planners import plan
from support.plans import arguments, refusal

pytestmark = pytest.mark.usefixtures("installed")
PIPELINE = {
    "id": "x", "framework": "torchtitan", "model": "Llama3.1-405B", "gpu": "H100", "n_gpus": "512",
    "gpus_per_node": "8", "precision": "bf16+float8", "seq_len": "8192", "global_batch": "256", "tp": "8", "pp": "8",
    "act_ckpt": "full", "compile": "True", "other": "local_batch=32;Interleaved 1F1B;AsyncTP",
}  # fmt: skip
EXPERTS = {
    "id": "y", "framework": "torchtitan graph_trainer", "model": "DeepSeek-V3 16B (torchtitan config)", "gpu": "H100",
    "n_gpus": "8", "precision": "bf16", "seq_len": "4096", "micro_batch": "4", "global_batch": "32", "ep": "4",
    "sharding": "FSDP (simple_fsdp) dp_shard=8", "act_ckpt": "memory_policy=full", "compile": "True",
    "other": "ChunkedCELoss 8+cudagraph;flex_attention",
}  # fmt: skip


def test_a_pipeline_is_its_trainer_s_and_one_rank_a_stage_is_captured() -> None:
    planned = plan(Case(PIPELINE))
    words = " ".join(planned.args)
    assert planned.recipe == "torchtitan_trainer.py"
    assert planned.ranks == tuple(range(0, 512, 64))
    assert "--family llama3 --flavor 405B" in words
    assert "--schedule Interleaved1F1B" in words
    assert "--float8 tensorwise" in words


def test_a_pipeline_has_as_many_micro_batches_as_stages_where_the_row_does_not_say() -> None:
    """torchtitan's default then."""
    assert "--batch 32 --microbatch 4 --global-batch 256" in arguments(PIPELINE)
    said = plan(Case({**PIPELINE, "micro_batch": "1"}))
    assert "--batch 32 --microbatch 1" in " ".join(said.args)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("ZBV", "--schedule ZBVZeroBubble"),
        ("Interleaved zero-bubble", "--schedule InterleavedZeroBubble"),
        ("DualPipeV", "--schedule DualPipeV"),
        ("1F1B", "--schedule 1F1B"),
        ("16 micro-batches", "--microbatch 2"),
        ("microbatches=8", "--microbatch 4"),
    ],
)
def test_schedules_and_micro_batches_go_by_their_names(said: str, words: str) -> None:
    assert words in arguments({**PIPELINE, "other": f"local_batch=32;{said}"})


def test_replicas_of_what_is_split_are_the_trainer_s() -> None:
    row = {**PIPELINE, "pp": "1", "tp": "1", "model": "Llama3.1-8B", "n_gpus": "64", "other": "local_batch=4"}
    assert "--replicas 8" in arguments({**row, "sharding": "HSDP 8x8"})
    assert "--replicas 64" in arguments({**row, "sharding": "DDP", "dp": "64"})


def test_experts_are_its_graph_trainer_s_where_the_row_says_so() -> None:
    words = arguments(EXPERTS)
    assert "--family deepseek_v3 --flavor 16B" in words
    assert "--checkpoint full --chunked-loss" in words
    assert "--traced --graphs" in words


def test_an_exchange_in_other_gpus_memory_is_refused() -> None:
    with pytest.raises(CannotBuildError, match="MinimalAsyncEP, which writes into other GPUs' memory"):
        plan(Case({**EXPERTS, "other": "MinimalAsyncEP;step10"}))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": "Gemma 9B"}, "the recipe has no model 'Gemma 9B'"),
        ({"other": "local_batch=5"}, "a batch of 5 does not make 8 micro-batches"),
        (
            {"other": "local_batch=32;zero bubble"},
            "PyTorch's zero-bubble schedules are ZBV and interleaved; the case does not say which",
        ),
        (
            {"precision": "float8 rowwise_with_gw_hp"},
            "the recipe computes gradients of weights in float8, and the case in bf16",
        ),
        ({"precision": "fp16"}, "the recipe computes in bf16 or float8, and the case in 'fp16'"),
    ],
)
def test_a_run_that_the_trainer_cannot_do_says_why(change: dict[str, str], reason: str) -> None:
    assert refusal({**PIPELINE, **change}) == reason


def test_the_trainer_has_to_be_installed(installed: set[str]) -> None:
    installed.discard("torchtitan")
    with pytest.raises(CannotBuildError, match="torchtitan is not installed: make frameworks"):
        plan(Case(PIPELINE))


@pytest.mark.parametrize(("said", "step"), [("CrossEntropyLoss;step10", 10), ("ChunkedCELoss 8;step20", 0), ("", 0)])
def test_the_first_log_after_step_1_has_the_mean_of_all_between(said: str, step: int) -> None:
    assert plan(Case({**EXPERTS, "other": said})).logged_at == step


FSDP = {
    "id": "z", "framework": "torchtitan", "gpu": "H100", "n_gpus": "8", "precision": "bf16", "seq_len": "8192",
    "micro_batch": "1", "act_ckpt": "selective", "compile": "True",
}  # fmt: skip


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("Qwen3-32B", "--family qwen3 --flavor 32B"),
        ("Qwen3 0.6B", "--family qwen3 --flavor 0.6B"),
        ("Qwen3 30B-A3B", "--family qwen3 --flavor 30B-A3B"),
        ("GPT-OSS 20B", "--family gpt_oss --flavor 20b"),
    ],
)
def test_models_that_are_not_like_llama_are_its_own_trainer_s_whatever_is_parallel(model: str, words: str) -> None:
    assert words in arguments({**FSDP, "model": model})


def test_a_decoder_like_llama_brings_its_shapes() -> None:
    assert arguments({**FSDP, "model": "Llama3.2-1B"}).startswith("--layers 16 --hidden 2048 --ffn 8192")


def test_without_a_word_on_it_activations_are_kept_as_torchtitan_does_by_default() -> None:
    assert "--checkpoint selective" in arguments({**FSDP, "model": "Llama3.1-8B", "act_ckpt": ""})


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("FLUX.1 dev", "neither n_layers is given nor are the shapes of 'FLUX.1 dev' known here"),
        ("Llama 4 Scout", "the recipe has no model 'Llama 4 Scout'"),
    ],
)
def test_models_that_torchtitan_here_has_not_are_refused(model: str, reason: str) -> None:
    assert refusal({**FSDP, "model": model, "ep": "8" if "Scout" in model else "1"}) == reason
