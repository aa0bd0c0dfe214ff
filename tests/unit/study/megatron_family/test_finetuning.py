"""Fine-tuning: adapters, and what NeMo's launcher had."""

from __future__ import annotations

import pytest

from presim.studies.validation.cases import Case
from presim_study.megatron_family.finetuning import adapters, completed, halves_state, packed

BRIDGE = {"id": "x", "framework": "Megatron-Bridge (Megatron-Core)", "gpu": "H100", "model": "LLAMA3_70B"}
LAUNCHED = {"id": "x", "gpu": "H100", "framework": "NeMo (Megatron-Core)", "framework_version": "NeMo container 24.07"}


def test_adapters_of_mlperf_are_on_all_of_attention() -> None:
    case = Case({**BRIDGE, "model": "Llama2-70B [LoRA r16]", "source": "github:mlcommons/training_results_v5.1:x"})
    found = adapters(case)
    assert found is not None
    assert (found.rank, found.targets) == (16, ("linear_qkv", "linear_proj"))
    bridge = adapters(Case({**BRIDGE, "model": "LLAMA3_70B [LoRA Performance]"}))
    assert bridge is not None
    assert bridge.targets == ("linear_qkv",)
    assert adapters(Case(BRIDGE)) is None


@pytest.mark.parametrize(
    ("model", "pp", "expected"), [("[LoRA]", "4", None), ("[SFT]", "4", "20"), ("[SFT]", "1", None)]
)
def test_fine_tuning_by_nemos_launcher_has_a_virtual_stage_for_each_layer(
    model: str, pp: str, expected: str | None
) -> None:
    row = {**LAUNCHED, "model": f"LLAMA2-70B {model}", "n_layers": "80", "pp": pp}
    assert completed(Case(row)).row.get("vp") == expected
    assert completed(Case({**row, "framework": "Megatron-LM"})).row.get("vp") is None
    assert completed(Case({**row, "framework_version": "NeMo container 25.02"})).row.get("vp") is None


def test_nemos_launcher_keeps_adams_state_in_bf16_where_all_weights_are_trained() -> None:
    row = {**LAUNCHED, "model": "LLAMA2-70B [SFT]"}
    assert halves_state(Case(row))
    assert not halves_state(Case({**row, "model": "LLAMA2-70B [LoRA]"}))
    assert not halves_state(Case({**row, "framework_version": "NeMo container 25.02"}))


def test_samples_are_apart_in_bridges_and_nemos_fine_tuning_only() -> None:
    tuned = {**BRIDGE, "model": "LLAMA3_70B [SFT Performance]", "seq_len": "4096", "micro_batch": "1"}
    assert packed(Case(tuned)) == 16
    assert packed(Case({**tuned, "model": "LLAMA3_70B"})) == 0
    assert packed(Case({**tuned, "source": "github:mlcommons/training_results_v5.1:x"})) == 0
    assert packed(Case({**tuned, "seq_len": "4100"})) == 0
