"""What rows say of adapters, and what of it no recipe has."""

from __future__ import annotations

import pytest

from presim.studies.validation.cases import CannotBuildError, Case
from presim_study.plans.adapters import Adapters, adapters_of


def of(model: str, other: str = "", precision: str = "bf16") -> Adapters | None:
    return adapters_of(Case({"id": "a", "model": model, "other": other, "precision": precision}))


@pytest.mark.parametrize(
    ("model", "other", "expected"),
    [
        ("Llama3.1-8B", "", None),
        ("Llama3.1-8B [Full finetune]", "rank 0 only", None),
        ("Llama3.1-8B [LoRA]", "", Adapters(8, None, None)),
        ("Llama2-70B [LoRA r16]", "", Adapters(16, None, None)),
        ("Llama 3 8B", "LoRA rank=64; alpha=16", Adapters(64, 16, None)),
        ("Llama 3 8B", "lora; r=4; lora_alpha: 8; targets=q_proj,v_proj", Adapters(4, 8, "q_proj,v_proj")),
        ("Llama 3 8B [LoRA]", "target_modules=all-linear", Adapters(8, None, "all-linear")),
        ("Llama 3 8B [LoRA]", "target modules: attention and mlp; packed",
         Adapters(8, None, "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj")),
        ("GPT-2 XL [LoRA]", "targets: c_attn c_proj", Adapters(8, None, "c_attn,c_proj")),
    ],
)  # fmt: skip
def test_ways_to_write_adapters(model: str, other: str, expected: Adapters | None) -> None:
    assert of(model, other) == expected


@pytest.mark.parametrize(
    ("model", "other", "precision", "reason"),
    [
        ("Llama3.1-8B [QLoRA]", "", "bf16", "the recipe has no weights in four or eight bits"),
        ("Llama3.1-8B [LoRA]", "", "bf16 (NF4 base)", "the recipe has no weights in four or eight bits"),
        ("Llama3.1-8B [LoRA]", "load_in_8bit", "bf16", "the recipe has no weights in four or eight bits"),
        ("Llama3.1-8B [DoRA]", "", "bf16", "the recipe's adapters are LoRA's, and the case's are dora"),
        (
            "Llama3.1-8B [LoRA]", "targets=q_proj,router", "bf16",
            "the recipe knows no layers 'router' to put adapters beside",
        ),
    ],
)  # fmt: skip
def test_what_no_recipe_has_is_said(model: str, other: str, precision: str, reason: str) -> None:
    with pytest.raises(CannotBuildError) as raised:
        of(model, other, precision)
    assert str(raised.value) == reason
