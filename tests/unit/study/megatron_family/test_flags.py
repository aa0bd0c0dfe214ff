"""Megatron's own options become fields of its configuration, or a reason not to build the case."""

from __future__ import annotations

import pytest

from presim.studies.validation.cases import CannotBuildError, Case
from presim_study.megatron_family.flags import fields_of, flags_of, refuse_unknown


def fields(model: str = "gpt", act_ckpt: str = "none", other: str = "") -> dict[str, object]:
    case = Case({"id": "x", "model": model, "act_ckpt": act_ckpt, "other": other})
    return fields_of(case, flags_of(case))


def test_numbers_and_switches_become_fields() -> None:
    said = "kv-channels=128;swiglu=True;disable-bias-linear=True;attention-softmax-in-fp32=True;NCCL_ALGO=Ring"
    assert fields(other=said) == {
        "kv_channels": 128,
        "gated_linear_unit": True,
        "add_bias_linear": False,
        "attention_softmax_in_fp32": True,
    }


def test_a_softmax_without_its_fused_kernel_may_be_said() -> None:
    assert fields(other="no-masked-softmax-fusion=True") == {"masked_softmax_fusion": False}


def test_modules_whose_activations_wait_on_the_host_may_be_said() -> None:
    found = fields(other="offload-modules=[moe_act core_attn]")
    assert found == {"fine_grained_activation_offloading": True, "offload_modules": ["moe_act", "core_attn"]}


def test_what_is_dropped_and_normalized_may_be_said() -> None:
    assert fields(other="hidden-dropout=0.0;normalization=RMSNorm") == {
        "hidden_dropout": 0.0,
        "normalization": "RMSNorm",
    }


def test_who_exchanges_tokens_and_on_how_many_sms_may_be_said() -> None:
    found = fields(other="moe-flex-dispatcher-backend=hybridep;moe-flex-dispatcher-num-sms=16")
    assert found == {"moe_flex_dispatcher_backend": "hybridep", "moe_hybridep_num_sms": 16}


@pytest.mark.parametrize(("said", "kind"), [("", "native"), (";cross-entropy-fusion-impl=te", "te")])
def test_a_fused_cross_entropy_is_megatrons_own_unless_told(said: str, kind: str) -> None:
    found = fields(other=f"cross-entropy-loss-fusion=True{said}")
    assert found == {"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": kind}


def test_what_only_the_name_says_counts() -> None:
    assert fields(model="gpt/te_tp4_pp1_qk_layernorm_test_mode") == {"qk_layernorm": True}


@pytest.mark.parametrize(
    ("other", "modules"), [("", ["core_attn"]), ("recompute-modules=[moe_act mlp]", ["moe_act", "mlp"])]
)
def test_selective_recomputation_names_its_modules(other: str, modules: list[str]) -> None:
    said = fields(act_ckpt="selective", other=other)
    assert said == {"recompute_granularity": "selective", "recompute_modules": modules}


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ("cuda-graph-impl=local", "cuda-graph-impl = local, and of which modules is not given"),
        ("optimizer=lion", "the recipes' optimizers are Adam and Muon, and the case's is lion"),
    ],
)
def test_what_the_recipe_has_not_is_a_reason(other: str, reason: str) -> None:
    with pytest.raises(CannotBuildError) as raised:
        refuse_unknown(flags_of(Case({"id": "x", "other": other})))
    assert str(raised.value) == reason


def test_options_that_change_nothing_here_are_no_reason() -> None:
    refuse_unknown(flags_of(Case({"id": "x", "other": "train-iters=50;optimizer=adam;cuda-graph-impl=none"})))
