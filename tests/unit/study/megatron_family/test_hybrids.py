"""Hybrids of Mamba and attention become runs of their recipe."""

from __future__ import annotations

import pytest

from presim.studies.validation.cases import CannotBuildError, Case
from presim_study.planners import plan
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


def test_a_hybrid_that_predicts_further_tokens_has_a_recipe_of_its_own() -> None:
    planned = plan(Case({**NANO, "model": "Nemotron_3_Super", "framework_version": "26.04", "gpu": "B200"}))
    words = " ".join(planned.args)
    assert planned.recipe == "megatron_predicting.py"
    assert "EMEMEMEM*EMEMEMEME --predictor *E --predictions 2 --layers 88" in words  # one predictor, twice
    assert "--set moe_latent_size=1024" in words
    assert "--recompute moe_act,layernorm" in words
    said = {**NANO, "framework": "Megatron-LM", "n_layers": "3", "hidden": "1024", "n_heads": "16"}
    said |= {"other": "hybrid-layer-pattern=ME*/*E/*E;mtp-num-layers=2;transformer-impl=transformer_engine"}
    words = arguments(said)
    assert "--pattern ME* --predictor *E --predictions 2 --own-weights --layers 3" in words
    assert "mtp_num_layers" not in words
    said |= {"other": said["other"] + ";mtp-use-repeated-layer=True"}
    assert "--own-weights" not in arguments(said)


def test_a_test_with_the_layers_of_a_published_hybrid_has_its_mamba() -> None:
    layers = "MEMEM*" + "EMEMEM*" * 4 + "EMEMEMEM*EMEMEMEME"
    row = {**TEST, "hidden": "2688", "other": f"hybrid-layer-pattern={layers}/*E;transformer-impl=transformer_engine"}
    assert "--set mamba_num_heads=64" in arguments(row)
    assert "mamba_num_heads" not in arguments({**row, "hidden": "1024"})


def test_hybrids_in_fp4_run_the_recipe_that_has_it() -> None:
    planned = plan(Case({**NANO, "precision": "NVFP4", "gpu": "GB200"}))
    assert planned.recipe == "megatron_predicting.py"
    assert "--predict" not in " ".join(planned.args)


def test_what_hybrids_lack_is_said(installed: set[str]) -> None:
    for layers, lack in (
        ("M-|M*", "no virtual stages of hybrids"),
        ("M-M*/*E/ME", "predictors are all alike"),
    ):
        with pytest.raises(CannotBuildError, match=lack):
            plan(Case({**TEST, "other": f"hybrid-layer-pattern={layers}"}))
    with pytest.raises(CannotBuildError, match="no pipeline of hybrids that predict"):
        plan(Case({**TEST, "pp": "2", "other": "hybrid-layer-pattern=M*/*E"}))
    installed.discard("causal_conv1d")
    with pytest.raises(CannotBuildError, match="causal_conv1d is not installed: make frameworks"):
        plan(Case(TEST))


ULTRA = {**NANO, "model": "Nemotron_3_Ultra", "framework_version": "26.08", "gpu": "GB300 (NVL72)", "n_gpus": "256"}
ULTRA |= {"ep": "64", "precision": "MXFP8", "global_batch": "256"}


def test_nemotron_3_ultra_is_split_in_racks_and_computes_activations_of_experts_again() -> None:
    planned = plan(Case(ULTRA))
    words = " ".join(planned.args)
    pattern = planned.args[planned.args.index("--pattern") + 1]
    assert planned.recipe == "megatron_predicting.py"
    assert (len(pattern), pattern.count("M"), pattern.count("E"), pattern.count("*")) == (108, 48, 48, 12)
    assert [at for at, layer in enumerate(pattern) if layer == "*"] == [7, 14, 23, 32, 39, 48, 57, 64, 73, 82, 89, 98]
    assert "--fsdp" in planned.args
    assert "--optimizer-instances 4" in words
    assert "--recompute moe_act" in words
    assert planned.graphed == ()
    assert planned.fused_router
    split = plan(Case({**ULTRA, "gpu": "GB200 (NVL72)", "tp": "2"})).args
    assert "--fsdp" not in split
    assert "--distributed-optimizer" in split


def test_nemotron_35_lightning_is_nano_that_predicts_two_further_tokens() -> None:
    row = {**NANO, "gpu": "GB200 (NVL72)", "framework_version": "26.08", "precision": "MXFP8", "n_gpus": "8"}
    nano, lightning = (plan(Case({**row, "model": name})) for name in ("Nemotron_3_Nano", "Nemotron_3_5_Lightning"))
    assert " ".join(lightning.args).startswith(" ".join((*nano.args[:2], "--predictor *E --predictions 2")))
    assert lightning.graphed == nano.graphed


@pytest.mark.parametrize("name", ["NemotronNano V2 12B", "Nemotron Nano 12B v2", "nvidia/Nemotron-Nano-12B-v2"])
def test_the_second_nano_s_size_may_stand_before_or_behind_its_generation(name: str) -> None:
    assert "--hidden 5120" in arguments({**NANO, "model": name, "ep": "1"})
