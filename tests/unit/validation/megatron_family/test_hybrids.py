"""Hybrids of Mamba and attention become runs of their recipe."""

from __future__ import annotations

import pytest

from presim.validation.cases import CannotBuildError, Case
from presim.validation.planners import plan
from support.plans import arguments

pytestmark = pytest.mark.usefixtures("installed")
NANO = {
    "id": "n", "framework": "Megatron-Bridge", "model": "Nemotron_3_Nano", "gpu": "H100", "n_gpus": "16",
    "precision": "FP8", "seq_len": "8192", "micro_batch": "1", "global_batch": "16", "ep": "8",
    "act_ckpt": "see recipe", "sharding": "distributed-optimizer",
}  # fmt: skip
TEST = {
    "id": "t", "framework": "Megatron-LM", "model": "hybrid/hybrid_mr", "gpu": "A100", "n_gpus": "8", "hidden": "1024",
    "n_heads": "16", "n_kv_heads": "8", "precision": "bf16", "seq_len": "1024", "micro_batch": "4",
    "global_batch": "32", "act_ckpt": "none", "other": "hybrid-layer-pattern=M-M*;transformer-impl=transformer_engine",
}  # fmt: skip


def test_a_published_hybrid_has_its_layers_experts_and_what_is_computed_again() -> None:
    planned = plan(Case(NANO))
    words = " ".join(planned.args)
    assert planned.recipe == "megatron_hybrid.py"
    assert "--pattern MEMEM*EMEMEM*" in words
    assert "--layers 52" in words
    assert "--set mamba_num_heads=64" in words
    assert "--set num_moe_experts=128" in words
    assert "--recompute moe,layernorm,core_attn,moe_act" in words


def test_layers_of_a_test_are_counted_in_its_pattern() -> None:
    words = arguments(TEST)
    assert "--pattern M-M* --layers 4" in words
    assert "--style gpt --tied --positions learned" in words
    assert "--set is_hybrid_model=True" in words


def test_nemotron_h_leaves_its_first_and_last_layers_out_of_fp8() -> None:
    row = {**NANO, "framework": "NeMo", "model": "Nemotron-H-56B", "tp": "8", "ep": "", "global_batch": "2"}
    words = arguments(row)
    assert "--layers 118" in words
    assert "--set fp8_recipe='tensorwise'" in words
    assert "--set num_layers_at_start_in_bf16=2" in words


def test_what_hybrids_lack_is_said(installed: set[str]) -> None:
    for layers in ("M-|M*", "M-M*/*E"):
        with pytest.raises(CannotBuildError, match="neither virtual stages nor predictors of hybrids"):
            plan(Case({**TEST, "other": f"hybrid-layer-pattern={layers}"}))
    with pytest.raises(CannotBuildError, match="of the kind 'nemotron'"):
        plan(Case({**NANO, "model": "Nemotron_3_Super"}))
    installed.discard("causal_conv1d")
    with pytest.raises(CannotBuildError, match="causal_conv1d is not installed"):
        plan(Case(TEST))
