"""Rows of a table become commands of `presim compose --framework megatron`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from presim.studies.validation.cases import CannotBuildError, Case
from presim_study.megatron_family.as_composed import ComposedCase, composed_case

BRIDGE = {
    "id": "one",
    "framework": "Megatron-Bridge (Megatron-Core)",
    "framework_version": "26.06.01 NeMo Container",
    "model": "LLAMA3_70B",
    "gpu": "GB200 (NVL72)",
    "gpus_per_node": "72",
    "n_gpus": "64",
    "precision": "MXFP8",
    "seq_len": "8192",
    "micro_batch": "1",
    "global_batch": "256",
    "tp": "2",
    "pp": "4",
    "vp": "5",
    "sharding": "distributed-optimizer DDP",
    "step_time_s": "8.5",
}
EXPERTS = {
    **BRIDGE, "model": "Qwen3_30B_a3B", "n_gpus": "8", "seq_len": "4096", "micro_batch": "4", "global_batch": "512",
    "tp": "1", "pp": "1", "vp": "", "ep": "8",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def composed(row: dict[str, str], **cells: str) -> ComposedCase:
    return composed_case(Case({**row, **cells}))


def test_a_row_s_cells_are_a_plan_of_a_named_model() -> None:
    found = composed(BRIDGE)
    assert (found.model, found.gpu, found.world_size, found.precision) == ("llama3-70b", "gb200", 64, "mxfp8")
    assert (found.plan.tensor, found.plan.pipeline, found.plan.virtual, found.plan.global_batch) == (2, 4, 5, 256)
    assert "context" not in found.named_fields
    assert found.overrides == ()


def test_adapters_are_bridge_s_with_packed_samples() -> None:
    found = composed(BRIDGE, model="LLAMA3_70B [LoRA]", seq_len="4096")
    assert {"peft=lora", "peft.target_modules=[linear_qkv]", "dataset.packed_samples=16"} <= set(found.overrides)


def test_experts_of_earlier_releases_are_exchanged_as_in_those() -> None:
    assert composed(EXPERTS).overrides == ()
    earlier = composed(EXPERTS, framework_version="25.11 NeMo Container").overrides
    assert "model.moe_token_dispatcher_type=alltoall" in earlier
    assert "model.cuda_graph_impl=none" in earlier
    hybrid = composed(EXPERTS, model="Nemotron_3_Nano", framework_version="26.04 NeMo Container").overrides
    assert "model.cuda_graph_scope=[mamba,attn,moe_router]" in hybrid


def test_a_model_without_a_name_has_a_config_of_its_sizes() -> None:
    sizes = {"n_layers": "12", "hidden": "8192", "ffn": "28672", "n_heads": "64", "n_kv_heads": "8", "vocab": "128256"}
    found = composed(BRIDGE, model="llama3-70b (cut to 12 layers)", pp="1", vp="", **sizes)
    config = json.loads(Path(found.model).read_text())
    assert (config["model_type"], config["num_hidden_layers"], config["vocab_size"]) == ("llama", 12, 128256)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"framework": "torchtitan"}, "another framework"),
        ({"sharding": "FSDP group 64"}, "Megatron's FSDP"),
        ({"step_time_s": ""}, "no step time"),
        ({"source": "NVIDIA/Megatron-LM:tests/functional_tests/x", "framework": "Megatron-LM"}, "a functional test"),
    ],
)
def test_what_a_command_cannot_say_has_a_reason(cells: dict[str, str], reason: str) -> None:
    with pytest.raises(CannotBuildError, match=reason):
        composed(BRIDGE, **cells)
