"""Which recipe builds a case."""

from __future__ import annotations

import pytest

from presim.studies.validation.cases import CannotBuildError, Case
from presim_study.megatron_family.recipe import recipe_of, refuse_other_families

ROW = {"id": "x", "framework": "Megatron-LM", "gpu": "H100 SXM 80GB", "n_gpus": "8", "model": "Llama2-7B"}
LAUNCHED = {**ROW, "framework": "NeMo (Megatron-Core)", "framework_version": "NeMo container 24.07"}
PACKED = {"model": "LLAMA2-7B [SFT]", "seq_len": "4096", "micro_batch": "1"}


@pytest.mark.parametrize(
    ("row", "recipe"),
    [
        (ROW, "megatron_gpt.py"),
        ({**LAUNCHED, **PACKED}, "megatron_half_state.py"),
        ({**LAUNCHED, **PACKED, "model": "LLAMA2-7B [LoRA]"}, "megatron_packed.py"),
        ({**LAUNCHED, **PACKED, "framework_version": "NeMo container 25.02"}, "megatron_packed.py"),
    ],
)
def test_what_is_packed_and_trained_in_full_by_nemos_launcher_has_a_recipe_of_its_own(
    row: dict[str, str], recipe: str
) -> None:
    assert recipe_of(Case(row))[0] == recipe


def test_a_family_that_no_recipe_builds_is_named() -> None:
    with pytest.raises(CannotBuildError, match="is a diffusion model"):
        refuse_other_families(Case({**ROW, "model": "Diffusion 2B"}), "megatron_gpt.py")
