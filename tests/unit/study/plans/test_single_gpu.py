"""Single models on one GPU: what tables call them, and what the recipe does."""

from __future__ import annotations

import pytest

from presim.studies.validation.cases import Case
from presim_study.planners import plan
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
        ("Gemma 2B", "gemma-2b"),
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


LORA = {**ROW, "framework": "HF transformers", "model": "Llama3.1-8B [LoRA]", "precision": "bf16", "act_ckpt": "full"}


@pytest.mark.usefixtures("installed")
def test_adapters_and_several_micro_batches_have_a_recipe_that_tunes() -> None:
    tuned = plan(Case({**LORA, "other": "r=16; alpha=32; targets=q_proj,v_proj", "global_batch": "8"}))
    assert tuned.recipe == "single_gpu_finetune.py"
    assert tuned.args[:4] == ("--model", "llama", "--shapes", "32,4096,14336,32,8,128256")
    assert " ".join(tuned.args[4:]) == (
        "--batch 1 --sequence 512 --image 0 --precision half --checkpoint"
        " --lora 16 --lora-alpha 32 --lora-targets q_proj,v_proj --accumulate 8"
    )
    whole = plan(Case({**LORA, "model": "Llama3.1-8B", "global_batch": "8"}))
    assert whole.args == (*tuned.args[: tuned.args.index("--lora")], "--accumulate", "8")
    assert plan(Case({**LORA, "model": "Llama3.1-8B", "global_batch": "1"})).recipe == "single_gpu.py"


@pytest.mark.usefixtures("installed")
def test_a_llama_of_no_published_size_has_that_of_its_cells() -> None:
    cells = {"n_layers": "2", "hidden": "256", "ffn": "512", "n_heads": "4", "n_kv_heads": "2", "vocab": "1024"}
    words = arguments({**LORA, "model": "Llama small [LoRA]", **cells})
    assert "--model llama --shapes 2,256,512,4,2,1024 " in words


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": "Llama3.1-8B [QLoRA]"}, "the recipe has no weights in four or eight bits"),
        ({"model": "BERT large [LoRA]"}, "the recipe puts adapters on decoders, and 'BERT large [LoRA]' is none"),
        ({"n_gpus": "2"}, "the recipe has no N_GPUS, and the case has n_gpus = 2"),
    ],
)
@pytest.mark.usefixtures("installed")
def test_adapters_that_the_recipe_has_not(change: dict[str, str], reason: str) -> None:
    assert refusal({**LORA, **change}) == reason


def test_peft_has_to_be_there(installed: set[str]) -> None:
    installed.discard("peft")
    assert refusal(LORA) == "peft is not installed: make frameworks"
