"""Single models on one GPU: what tables call them, and what the recipe does."""

from __future__ import annotations

import pytest

from support.plans import arguments, refusal

ROW = {
    "id": "n", "framework": "HF transformers eager attention", "gpu": "Tesla V100-PCIE-32GB", "precision": "fp32",
    "seq_len": "512", "micro_batch": "1", "act_ckpt": "none",
}  # fmt: skip


@pytest.mark.parametrize(
    ("said", "model"),
    [
        ("gpt3_27", "gpt3-2.7b"),
        ("GPT-2 XL", "gpt2-xl"),
        ("gpt2", "gpt2"),
        ("bert_large", "bert-large"),
        ("BERT base", "bert-base"),
        ("opt_13", "opt-1.3b"),
        ("OPT 6.7B", "opt-6.7b"),
        ("T5 Large", "t5-large"),
        ("T5 3B", "t5-3b"),
        ("ViT-L/16", "vit-l16"),
        ("Gemma 2 2B", "gemma2-2b"),
        ("CLIP ViT-L/14 336", "clip-vit-l14-336"),
    ],
)
def test_a_model_is_found_however_its_name_is_written(said: str, model: str) -> None:
    assert f"--model {model} " in arguments({**ROW, "model": said})


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("Llama 2 7B", "--model llama --shapes 32,4096,11008,32,32,32000"),
        ("Qwen2.5 7B", "--model qwen2 --shapes 28,3584,18944,28,4,152064"),
        ("Qwen3 8B", "--model qwen3 --shapes 36,4096,12288,32,8,151936"),
        ("meta-llama/Llama-3.2-1B", "--model llama3.2-1b --batch"),
    ],
)
def test_published_decoders_bring_their_sizes(said: str, words: str) -> None:
    assert words in arguments({**ROW, "model": said})


@pytest.mark.parametrize("said", ["switchxl4", "ResNet-50", "Qwen2-57B-A14B", "Gemma 3 4B", "GPT-J 6B"])
def test_other_models_are_refused_and_no_neighbour_taken(said: str) -> None:
    assert refusal({**ROW, "model": said}) == f"the recipe has no model {said!r}"


def test_a_step_without_a_backward_pass_is_none() -> None:
    row = {**ROW, "model": "bert_large", "note": "mode=inf; fw_ms=88"}
    assert refusal(row) == "the case's step has no backward pass, and the recipe trains"


@pytest.mark.parametrize(
    ("said", "precision"),
    [
        ("fp32 (no TF32: sgemm kernels)", "full"),
        ("float32", "full"),
        ("tf32", "tf32"),
        ("fp16", "fp16"),
        ("half", "fp16"),
        ("bfloat16", "bf16"),
        ("amp_bf16", "mixed"),
    ],
)
def test_ways_to_write_a_number_format(said: str, precision: str) -> None:
    words = {"bf16": "half"}.get(precision, precision)
    assert f"--precision {words}" in arguments({**ROW, "model": "bert_large", "precision": said})
