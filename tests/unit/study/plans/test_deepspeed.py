"""Rows of DeepSpeed become runs of its engine, or say why they cannot."""

from __future__ import annotations

import pytest

from presim.studies.validation.cases import Case
from presim_study.planners import plan
from support.plans import arguments, refusal

pytestmark = pytest.mark.usefixtures("installed")
ROW = {
    "id": "d", "framework": "HF Accelerate + DeepSpeed", "model": "GPT-2 1.5B", "gpu": "A100 SXM 80GB", "n_gpus": "16",
    "gpus_per_node": "8", "precision": "fp16", "seq_len": "1024", "micro_batch": "4", "global_batch": "128",
    "sharding": "ZeRO-2", "act_ckpt": "full",
}  # fmt: skip
OFFLOADS = "the recipe keeps all on the GPU, and the case offloads to the host or to disks"


def test_a_row_names_stage_precision_and_batches() -> None:
    planned = plan(Case(ROW))
    assert planned.recipe == "deepspeed_gpt.py"
    assert planned.args == (
        *("--model", "gpt2-xl", "--sequence", "1024", "--batch", "4", "--accumulate", "2", "--precision", "fp16"),
        *("--zero", "2", "--checkpoint"),
    )
    assert (planned.cluster.world_size, planned.cluster.nodes) == (16, 2)


@pytest.mark.parametrize(
    ("change", "stage"),
    [
        ({"sharding": "ZeRO stage 3"}, 3),
        ({"sharding": "ZeRO-2", "other": "hosts with CPU EPYC 7742"}, 2),
        ({"sharding": "zero1"}, 1),
        ({"sharding": "ZeRO-0"}, 0),
        ({"sharding": "stage=2"}, 2),
        ({"sharding": "DDP"}, 0),
        ({"sharding": "none"}, 0),
        ({"sharding": "", "framework": "DeepSpeed ZeRO-3"}, 3),
        ({"sharding": "", "other": "zero_stage_1; zero-1"}, 1),
    ],
)
def test_ways_to_write_a_stage(change: dict[str, str], stage: int) -> None:
    assert f"--zero {stage} " in arguments({**ROW, **change})


def test_sizes_are_the_cells_or_those_that_were_published() -> None:
    cells = {"n_layers": "24", "hidden": "2048", "ffn": "8192", "n_heads": "16", "vocab": "50304"}
    words = arguments({**ROW, "model": "GPT h2048 L24", **cells})
    assert "--model gpt --shapes 24,2048,8192,16,16,50304 " in words
    words = arguments({**ROW, "model": "Llama 2 7B", "precision": "bf16 mixed"})
    assert "--model llama --shapes 32,4096,11008,32,32,32000 " in words
    assert "--precision bf16 " in words


def test_options_of_zero_are_handed_on() -> None:
    said = "overlap_comm=true; reduce_bucket_size: 5e8; packed samples"
    assert "--zero-options overlap_comm=true,reduce_bucket_size=5e8 " in arguments({**ROW, "other": said})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tp": "2"}, "the recipe has no TP, and the case has tp = 2"),
        ({"pp": "4"}, "the recipe has no PP, and the case has pp = 4"),
        ({"sharding": ""}, "sharding = '' does not say which stage of ZeRO: ZeRO-2"),
        ({"sharding": "ZeRO-Infinity"}, OFFLOADS),
        ({"sharding": "ZeRO-3 CPU"}, OFFLOADS),
        ({"other": "optimizer states on CPU"}, OFFLOADS),
        ({"optimizer": "DeepSpeedCPUAdam"}, OFFLOADS),
        ({"optimizer": "1-bit Adam"}, "the recipe's optimizer is Adam, and the case's is 1-bit Adam"),
        (
            {"act_ckpt": "selective"},
            "the recipe computes whole layers again or nothing, and the case's act_ckpt is 'selective'",
        ),
        ({"sharding": "ZeRO++"}, "the recipe shards over all GPUs in 16 bits, and the case by ZeRO++ or MiCS"),
        ({"precision": "fp32"}, "the recipe computes in bf16 or fp16, and the case in 'fp32'"),
        ({"model": "BERT large"}, "the recipe trains decoders, and 'BERT large' is none"),
        ({"model": "BLOOM 7B"}, "the recipe has no model 'BLOOM 7B'"),
        ({"model": "Llama 2 7B [QLoRA]"}, "the recipe has no weights in four or eight bits"),
    ],
)
def test_what_the_recipe_cannot_do_is_said(change: dict[str, str], reason: str) -> None:
    assert refusal({**ROW, **change}) == reason


def test_adapters_are_peft_s() -> None:
    words = arguments({**ROW, "model": "Llama 2 7B [LoRA r16]", "other": "targets=q_proj"})
    assert words.endswith("--zero 2 --checkpoint --lora 16 --lora-targets q_proj")


def test_deepspeed_has_to_be_there(installed: set[str]) -> None:
    installed.discard("deepspeed")
    assert refusal(ROW) == "deepspeed is not installed: make frameworks"


def test_megatron_deepspeed_is_megatron_s() -> None:
    row = {**ROW, "framework": "Megatron-DeepSpeed", "model": "GPT-3 1.3B", "sharding": "DDP"}
    assert plan(Case(row)).recipe == "megatron_scripted.py"
