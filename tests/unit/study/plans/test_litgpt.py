"""litgpt's tables of fine-tuning become runs of its recipe."""

from __future__ import annotations

import pytest

from presim.studies.validation.cases import Case
from presim_study.planners import plan
from support.plans import arguments, refusal

pytestmark = pytest.mark.usefixtures("installed")
ROW = {
    "id": "l", "framework": "litgpt 8641822", "model": "phi-1.5 1.3 B [lora]", "gpu": "A100 SXM 40GB", "n_gpus": "1",
    "precision": "bf16-true bnb.nf4-dq", "seq_len": "1044", "micro_batch": "2", "global_batch": "128",
}  # fmt: skip


def test_a_row_names_model_method_and_what_weights_are_kept_in() -> None:
    planned = plan(Case(ROW))
    assert planned.recipe == "litgpt_finetune.py"
    assert planned.args == (
        *("--model", "phi-1_5", "--method", "lora", "--sequence", "1044", "--batch", "2"),
        *("--accumulate", "2", "--quantize", "nf4-dq"),
    )


def test_several_gpus_say_how_many_are_in_a_node() -> None:
    words = arguments({**ROW, "n_gpus": "16", "precision": "bf16-true"})
    assert "--gpus 16 --gpus-per-node 8" in words


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": "phi-9 [lora]"}, "the recipe has no model 'phi-9 [lora]'"),
        ({"model": "Llama 2 7 B [full]"}, "the recipe has no model 'Llama 2 7 B [full]'"),
        ({"precision": "16-mixed"}, "the recipe computes in bf16-true, and the case in '16-mixed'"),
        (
            {"step_time_s": "0.2", "note": "seq_len is LONGEST sample"},
            "the step time is that of samples whose lengths are not given, but for the longest",
        ),
    ],
)
def test_what_cannot_be_built_says_why(change: dict[str, str], reason: str) -> None:
    assert refusal({**ROW, **change}) == reason


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("Llama 3 8 B [lora]", "Llama-3-8B"),
        ("CodeLlama 13 B [lora]", "CodeLlama-13b-hf"),
        ("Mistral 7 B [adapter]", "Mistral-7B-v0.1"),
        ("Falcon 40 B [lora]", "falcon-40b"),
        ("TinyLlama 1.1 B [lora]", "tiny-llama-1.1b"),
    ],
)
def test_models_are_called_as_litgpt_s_configurations(said: str, name: str) -> None:
    assert f"--model {name} " in arguments({**ROW, "model": said, "precision": "bf16-true"})
