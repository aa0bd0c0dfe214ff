"""Types of weights by each method of quantisation, and modules that a checkpoint leaves in 16 bits."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from presim.composition.models import checkpoint
from presim.composition.models.description import Model
from presim.errors import InputError
from presim.hardware import catalogue
from presim.serving import weight_types
from presim.serving.defaults import with_defaults
from presim.serving.model_lookup import find, from_config
from presim.serving.serving_plan import ServingPlan

MOE = "qwen3-30b-a3b"
DENSE = "qwen3-0.6b"


def group(bits: int, kind: str, inputs: bool, **more: Any) -> dict[str, Any]:
    weights = {"num_bits": bits, "type": kind, **more}
    return {"targets": ["Linear"], "weights": weights, "input_activations": {"num_bits": bits} if inputs else None}


def tensors(*groups: dict[str, Any], **more: Any) -> dict[str, Any]:
    named = {f"group_{number}": entry for number, entry in enumerate(groups)}
    return {"quant_method": "compressed-tensors", "config_groups": named, "ignore": ["lm_head"], **more}


def modelopt(algorithm: str, **more: Any) -> dict[str, Any]:
    return {"quant_method": "modelopt", "quant_algo": algorithm, **more}


def scheme(kind: str, scope: str = "per_group", inputs: bool = True) -> dict[str, Any]:
    return {"weight": {"dtype": kind, "qscheme": scope}, "input_tensors": {"dtype": kind} if inputs else None}


def quark(kind: str, scope: str, inputs: bool, **more: Any) -> dict[str, Any]:
    of_all = scheme(kind, scope, inputs) if kind else {}
    return {"quant_method": "quark", "global_quant_config": of_all, "exclude": ["lm_head"], **more}


def torchao(config: str | dict[str, Any]) -> dict[str, Any]:
    modules = {"_type": "ModuleFqnToConfig", "_data": {"module_fqn_to_config": config}}
    default = {"_type": config, "_data": {}} if isinstance(config, str) else modules
    return {"quant_method": "torchao", "quant_type": {"default": default}}


# (what the config says, weights, experts)
METHODS: list[tuple[dict[str, Any], str, str]] = [
    ({"quant_method": "fp8"}, "fp8", "fp8"),
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8-block", "fp8-block"),
    ({"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]}, "fp8", "fp8"),
    ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4", "int4"),
    ({"quant_method": "gptq", "bits": 4}, "int4", "int4"),
    ({"quant_method": "gptq", "bits": 8}, "int8-only", "int8-only"),
    ({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}, "bf16", "mxfp4"),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4", "int4"),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8", "int8"),
    ({"quant_method": "experts_int8"}, "bf16", "int8-only"),
    (modelopt("FP8", exclude_modules=["lm_head"]), "fp8", "fp8"),
    (modelopt("NVFP4", ignore=["lm_head", "*self_attn*"]), "bf16", "fp4"),
    (modelopt("FP8_PB_WO"), "fp8-block", "fp8-block"),
    (tensors(group(8, "float", True, strategy="channel")), "fp8", "fp8"),
    (tensors(group(8, "float", True, strategy="block")), "fp8-block", "fp8-block"),
    (tensors(group(8, "int", True)), "int8", "int8"),
    (tensors(group(8, "int", False)), "int8-only", "int8-only"),
    (tensors(group(4, "int", False), format="pack-quantized"), "int4", "int4"),
    (tensors(group(4, "float", True, group_size=16)), "fp4", "fp4"),
    (tensors(group(4, "float", False, group_size=16)), "fp4-only", "fp4-only"),
    (tensors(group(4, "int", False), ignore=["re:.*self_attn.*"]), "bf16", "int4"),
    ({"quant_method": "intel/auto-round", "bits": 4, "data_type": "int"}, "int4", "int4"),
    ({"quant_method": "mxfp8", "weight_block_size": [1, 32], "ignored_layers": ["lm_head"]}, "fp8-block", "fp8-block"),
    (quark("fp8_e4m3", "per_tensor", True), "fp8", "fp8"),
    (quark("fp8_e4m3", "per_channel", True, exclude=["re:.*self_attn.*"]), "bf16", "fp8"),
    (quark("fp4", "per_group", True), "mxfp4", "mxfp4"),
    (quark("int8", "per_channel", True), "int8", "int8"),
    (quark("uint4", "per_group", False), "int4", "int4"),
    (quark("fp8_e4m3", "per_tensor", True, layer_quant_config={"*.mlp.experts*": scheme("fp4")}), "fp8", "mxfp4"),
    (quark("", "", False, layer_quant_config={"*.mlp.experts*": scheme("fp4")}), "bf16", "mxfp4"),
    (torchao("Float8DynamicActivationFloat8WeightConfig"), "fp8", "fp8"),
    (torchao("Int8WeightOnlyConfig"), "int8-only", "int8-only"),
    ({"quant_method": "torchao", "quant_type": "int4_weight_only"}, "int4", "int4"),
    (torchao({"_default": {"_type": "Int4WeightOnlyConfig"}, "re:.*self_attn.*": None}), "bf16", "int4"),
    (
        torchao({"re:.*experts.*": {"_type": "Int4WeightOnlyConfig"}, "_default": {"_type": "Int8WeightOnlyConfig"}}),
        "int8-only", "int4",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("quantization", "weights", "experts"), METHODS)
def test_a_method_gives_the_types_of_weights(quantization: dict[str, Any], weights: str, experts: str) -> None:
    model = checkpoint.read(find(MOE), quantization, "config.json")
    assert (model.checkpoint.weights, model.checkpoint.experts) == (weights, experts)
    assert model.checkpoint.problem == ""
    assert model.checkpoint.origin == f"{model.checkpoint.method} in config.json"
    assert model.parameters == find(MOE).parameters


@pytest.mark.parametrize(
    ("quantization", "reason"),
    [
        ({"quant_method": "aqlm"}, "is quantised by aqlm, which presim does not price"),
        ({"bits": 4}, "is quantised by an unnamed method, which presim does not price"),
        ({"quant_method": "gptq", "bits": 3}, "is quantised by GPTQ to 3 bits; presim prices 4 and 8"),
        (modelopt("W4A8_AWQ"), "is quantised by ModelOpt's W4A8_AWQ, which presim does not price"),
        (modelopt("MIXED_PRECISION"), "has mixed precision without quantized_layers"),
        (tensors(group(2, "int", False)), "has weights of 2 bits"),
        ({"quant_method": "compressed-tensors"}, "has compressed-tensors without config_groups"),
        (quark("fp6_e3m2", "per_group", True), r"has weights of fp6_e3m2 \(per_group\) with quantised inputs in Quark"),
        (torchao("Int8DynamicActivationIntxWeightConfig"), "torchao's Int8DynamicActivationIntxWeightConfig"),
        ({"quant_method": "torchao"}, "torchao without quant_type"),
    ],
)
def test_types_that_are_not_known_are_refused_unless_the_user_names_some(
    quantization: dict[str, Any], reason: str
) -> None:
    model = checkpoint.read(find(DENSE), quantization, "config.json")
    with pytest.raises(InputError, match=reason):
        weight_types.typed(ServingPlan(), model, None, None)
    assert weight_types.typed(ServingPlan(), model, "fp8", None).weights == "fp8"


def types(model: Model) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for layer, count in model.counts():
        for weight in layer.weights:
            counts[weight.name, weight.stored] += count
    return counts


def test_modules_that_are_left_out_stay_in_16_bits_in_their_layers_alone() -> None:
    quantization = {
        "quant_method": "fp8",
        "modules_to_not_convert": ["model.layers.0.mlp", "model.layers.3.self_attn.o_proj"],
    }
    model = checkpoint.read(find(DENSE), quantization, "config.json")
    assert len(model.kinds) == 3
    assert types(model)["mlp.down_proj.weight", "bf16"] == types(model)["self_attn.o_proj.weight", "bf16"] == 1
    assert types(model)["mlp.down_proj.weight", "fp8"] == model.layers - 1


def test_mixed_precision_has_a_type_for_each_listed_module() -> None:
    layers = {
        f"model.layers.{layer}.mlp.{name}_proj": {"quant_algo": "NVFP4"}
        for layer in range(28)
        for name in ("up", "down")
    }
    layers |= {f"model.layers.{layer}.self_attn.q_proj": {"quant_algo": "FP8"} for layer in range(28)}
    model = checkpoint.read(find(DENSE), modelopt("MIXED_PRECISION", quantized_layers=layers), "config.json")
    assert types(model)["mlp.up_proj.weight", "fp4"] == types(model)["self_attn.q_proj.weight", "fp8"] == 28
    assert types(model)["mlp.gate_proj.weight", "bf16"] == 28


def test_a_gpu_without_products_of_a_type_is_refused_or_unpacks_it() -> None:
    """V100s have no kernels of FP8; A100s multiply it in 16 bits; Blackwell has none of INT8."""
    model = find("Qwen/Qwen3-32B-FP8")
    plan = weight_types.typed(ServingPlan(), model, None, None)
    assert (plan.weights, plan.as_published) == ("fp8-block", True)
    with pytest.raises(InputError, match=r"compute capability 7\.0; fp8-block weights need 7\.5 or later"):
        weight_types.check(model, plan, catalogue.gpu("v100-32gb-sxm"))
    with pytest.raises(InputError, match="no INT8 products"):
        weight_types.check(model, ServingPlan(weights="int8"), catalogue.gpu("b200"))
    unpacked, plan = weight_types.as_computed(model, plan, catalogue.gpu("a100-80gb-sxm"))
    assert {weight.stored for kind in unpacked.kinds for weight in kind.weights} == {"bf16", "int8-only"}
    assert plan.weights == "int8-only"


def test_an_engine_that_does_not_load_the_method_is_refused() -> None:
    model = checkpoint.read(find(DENSE), tensors(group(8, "int", True)), "config.json")
    with pytest.raises(InputError, match="which trtllm does not load; use --kernels vllm or sglang"):
        weight_types.typed(ServingPlan(kernels="trtllm"), model, None, None)


_FP8_SCHEME = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False}


@pytest.mark.parametrize(
    ("quantization", "cache"),
    [
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": _FP8_SCHEME}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": None}, "bf16"),
        ({"quant_method": "fp8", "kv_cache_scheme": _FP8_SCHEME}, "bf16"),
        (
            {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": {**_FP8_SCHEME, "dynamic": True}},
            "bf16",
        ),
    ],
)
def test_a_checkpoint_says_how_keys_and_values_are_kept(quantization: dict[str, Any], cache: str) -> None:
    """Unless the user does; SGLang follows ModelOpt's alone."""
    model = checkpoint.read(find("llama3-8b"), quantization, "config.json")
    gpu = catalogue.gpu("h100-sxm")
    assert model.checkpoint.cache == cache
    assert with_defaults({"as_published": True}, model, gpu).cache == cache
    assert with_defaults({"as_published": True, "cache": "bf16"}, model, gpu).cache == "bf16"
    assert with_defaults({"as_published": False}, model, gpu).cache == "bf16"


def types_of(model: Model, *parts: str) -> Counter[str]:
    """Parameters of some parts of a model's layers by their type."""
    types: Counter[str] = Counter()
    for layer, count in model.counts():
        for weight in layer.weights:
            if weight.part in parts:
                types[weight.stored] += count * weight.elements
    return types


@pytest.mark.parametrize(
    "rules",
    [
        {"quant_method": "gptq", "bits": 4, "dynamic": {"+:.*\\.self_attn\\..*": {"bits": 8, "group_size": 64}}},
        {"quant_method": "gptq", "bits": 4, "dynamic": {".*self_attn.*": {"bits": 8}, "-:.*mlp.*q_proj": {}}},
        {"quant_method": "auto-round", "bits": 4, "extra_config": {".*self_attn.*": {"bits": 8}}},
    ],
)
def test_rules_for_some_modules_change_their_bits_alone(rules: dict[str, Any]) -> None:
    model = checkpoint.read(find(DENSE), rules, "a test")
    assert set(types_of(model, "mixer")) == {"int8-only"}
    assert set(types_of(model, "dense")) == {"int4"}


def test_auto_rounds_exact_names_stay_in_16_bits_in_their_layer_alone() -> None:
    names = [f"model.language_model.layers.3.mlp.{name}_proj" for name in ("gate", "up", "down")]
    extra = {name: {"bits": 16, "data_type": "fp"} for name in names}
    rules = {"quant_method": "auto-round", "bits": 4, "data_type": "int", "extra_config": extra}
    model = find(DENSE)
    types = types_of(checkpoint.read(model, rules, "a test"), "dense")
    assert types["bf16"] * model.layers == types.total()


@pytest.mark.parametrize("entries", [["self_attn.o_proj"], [["self_attn.o_proj"]]])
def test_modules_that_alone_are_quantised(entries: list[Any]) -> None:
    rules = {"quant_method": "gptq", "bits": 4, "modules_in_block_to_quantize": entries}
    model = checkpoint.read(find(DENSE), rules, "a test")
    stored = {weight.name: weight.stored for layer, _ in model.counts() for weight in layer.weights}
    assert [name for name, kind in stored.items() if kind == "int4"] == ["self_attn.o_proj.weight"]


def test_experts_listed_by_mixtrals_names_have_their_types() -> None:
    layers = {
        f"language_model.model.layers.{layer}.block_sparse_moe.experts.{expert}.w{product}": {"quant_algo": "NVFP4"}
        for layer in range(48)
        for expert in range(2)
        for product in (1, 2, 3)
    }
    model = checkpoint.read(find(MOE), modelopt("MIXED_PRECISION", quantized_layers=layers), "a test")
    assert set(types_of(model, "experts")) == {"fp4"}
    assert set(types_of(model, "mixer")) == {"bf16"}


@pytest.mark.parametrize("prefix", ["thinker.model", "llm.model", "language_model.backbone"])
def test_a_list_of_modules_fits_whatever_wraps_the_decoder(prefix: str) -> None:
    rules = {"quant_method": "fp8", "ignored_layers": [f"{prefix}.layers.{layer}.self_attn" for layer in range(28)]}
    model = checkpoint.read(find(DENSE), rules, "a test")
    assert set(types_of(model, "mixer")) == {"bf16"}
    assert set(types_of(model, "dense")) == {"fp8"}


def test_an_encoders_layers_are_not_the_decoders() -> None:
    rules = {"quant_method": "fp8", "ignored_layers": ["audio_tower.layers.0.self_attn", "talker.model.layers.0.mlp"]}
    assert set(types_of(checkpoint.read(find(DENSE), rules, "a test"), "mixer", "dense")) == {"fp8"}


@pytest.mark.parametrize(
    ("quantization", "reason"),
    [
        ({"quant_method": "gptq", "bits": 4, "dynamic": {".*o_proj": {"bits": 3}}}, "to 3 bits"),
        ({"quant_method": "auto-round", "bits": 4, "data_type": "mx_fp", "act_bits": 4}, "mx_fp with inputs of 4 bits"),
        ({"quant_method": "auto-round", "bits": 8, "data_type": "fp"}, "AutoRound to fp"),
        (tensors(group(8, "int", True), sparsity_config={"format": "sparse-24-bitmask"}), "sparse-24-bitmask"),
    ],
)
def test_types_of_some_modules_that_are_not_known_are_refused(quantization: dict[str, Any], reason: str) -> None:
    assert reason in checkpoint.read(find(DENSE), quantization, "a test").checkpoint.problem


def test_a_dense_sparsity_config_changes_nothing() -> None:
    quantization = tensors(group(8, "int", True), sparsity_config={"format": "dense", "global_sparsity": 0.14})
    assert checkpoint.read(find(DENSE), quantization, "a test").checkpoint.weights == "int8"


def test_quarks_weights_in_two_steps_are_refused() -> None:
    steps = [{"dtype": "fp8_e4m3", "qscheme": "per_tensor"}, {"dtype": "int4", "qscheme": "per_channel"}]
    of_all = {"weight": steps, "input_tensors": {"dtype": "fp8_e4m3"}}
    problem = checkpoint.read(
        find(MOE), {"quant_method": "quark", "global_quant_config": of_all}, "a test"
    ).checkpoint.problem
    assert problem == "has weights in two steps (fp8_e4m3 and int4) of Quark, which presim does not price"


def test_quarks_approximations_are_named() -> None:
    exported = {"kv_cache_group": ["*k_proj", "*v_proj"], "pack_method": "reorder"}
    model = checkpoint.read(find(DENSE), quark("fp4", "per_group", True, export=exported), "a test")
    assert model.checkpoint.cache == "bf16"
    assert model.notes == (
        "Products of MXFP4 weights with quantised inputs are priced as those with inputs of 16 bits.",
        "Its factors for keys and values in FP8 are used only with --kv fp8.",
    )


def test_groups_of_fp8_are_priced_as_blocks_with_a_note() -> None:
    model = checkpoint.read(find(DENSE), tensors(group(8, "float", True, strategy="group", group_size=32)), "a test")
    assert model.checkpoint.weights == "fp8-block"
    assert any("MXFP8" in note for note in model.notes)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"quantization": {"bits": 4, "group_size": 64}}, "quantised by MLX to 4 bits"),
        (
            {"llm_config": {"quantization_config": {"quant_method": "awq", "bits": 4}}},
            "quantised by awq in its llm_config",
        ),
    ],
)
def test_types_where_no_engine_looks_for_them_are_refused(
    more: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dense = find(DENSE)
    monkeypatch.setattr("presim.serving.model_lookup.describe", lambda config, name: dense)
    assert reason in from_config(more, "a-model").checkpoint.problem
