"""A checkpoint whose patterns fit no module of its model is named or refused, and so are keys that nothing reads."""

from __future__ import annotations

from typing import Any

import pytest

from presim.composition.models import checkpoint
from presim.composition.models.description import Model
from presim.composition.models.pattern_coverage import coverage, unread_keys
from presim.serving.model_lookup import find

MOE = "qwen3-30b-a3b"
DENSE = "qwen3-0.6b"
_INT4 = {"num_bits": 4, "type": "int"}


def tensors(*targets: str, ignore: list[str] | None = None) -> dict[str, Any]:
    group = {"targets": list(targets), "weights": _INT4, "input_activations": None}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": ignore or []}


def read(word: str, quantization: dict[str, Any]) -> Model:
    return checkpoint.read(find(word), quantization, "a test")


@pytest.mark.parametrize(
    "pattern",
    [
        "model.layers.3.self_attn.o_proj",
        "language_model.model.layers.3.self_attn*",
        "model.layers.0*",
        "model.layers.*.mlp",
        "re:.*self_attn.*",
        "re:model.layers.27.mlp.(gate|up|gate_up)_proj",
        "self_attn.qkv_proj",  # the joint name of three products
        "mlp.gate_up_proj",
    ],
)
def test_patterns_of_modules_that_are_there_fit(pattern: str) -> None:
    covered = coverage(find(DENSE), {"quant_method": "fp8", "ignored_layers": [pattern]})
    assert (covered.fitting, covered.unmatched) == (1, ())


@pytest.mark.parametrize(
    "pattern",
    [
        "lm_head",
        "re:.*lm_head",
        "model.embed_tokens",
        "model.visual.blocks.9.mlp.linear_fc2",
        "audio_tower.layers.0.self_attn",
        "mtp.layers.0.mlp.up_proj",
        "model.layers.28.mlp.up_proj",  # beyond the last layer: it predicts further tokens
        "model.layers.28.*",
        "model.layers.3.input_layernorm",
        "model.layers.3.mlp.gate",
        "model.layers.3.mlp.shared_expert_gate",
        "Llama4TextAttention",  # a class, in lists of RedHatAI's Llama 4
        "re:.*mlp\\.gate$",
    ],
)
def test_patterns_of_what_has_16_bits_anyway_are_not_missed(pattern: str) -> None:
    assert not coverage(find(DENSE), {"quant_method": "fp8", "ignored_layers": [pattern]}).unmatched


@pytest.mark.parametrize("layers", [["model.layers.0.attention.wo"], ["transformer.blocks.5.ff.w_in", "lm_head"]])
def test_a_checkpoint_that_names_other_modules_alone_is_refused(layers: list[str]) -> None:
    problem = read(DENSE, {"quant_method": "fp8", "ignored_layers": layers}).checkpoint.problem
    assert problem == f"names modules that its layers do not have: 1 pattern of its quantisation ({layers[0]})"


def test_some_patterns_that_fit_nothing_are_noted() -> None:
    ignored = ["model.layers.0.self_attn", "model.layers.0.attention.wo", "model.layers.1.attention.wo"]
    model = read(DENSE, {"quant_method": "fp8", "ignored_layers": ignored})
    assert model.checkpoint.problem == ""
    assert model.notes[-1].startswith(
        "No module of the model's layers fits 2 patterns of its quantisation (model.layers.0.attention.wo, ...)"
    )


@pytest.mark.parametrize(
    ("word", "quantization", "named"),
    [
        (DENSE, {"quant_method": "mxfp4"}, ""),  # quantises experts alone
        (DENSE, tensors("re:.*w13_weight"), ": none fits 1 pattern of its quantisation (re:.*w13_weight)"),
        (DENSE, tensors("MixtureOfBlocks"), ": none fits 1 pattern of its quantisation (MixtureOfBlocks)"),
        (DENSE, tensors("Linear", ignore=["re:.*proj"]), ""),
        (DENSE, {"quant_method": "gptq", "bits": 4, "modules_in_block_to_quantize": ["self_attention.dense"]},
         ": none fits 1 pattern of its quantisation (self_attention.dense)"),
        (DENSE, {"quant_method": "auto-round", "bits": 4, "block_name_to_quantize": "model.visual.blocks"}, ""),
    ],
)  # fmt: skip
def test_a_checkpoint_that_quantises_no_weight_of_the_layers_is_refused(
    word: str, quantization: dict[str, Any], named: str
) -> None:
    method = quantization["quant_method"]
    problem = read(word, quantization).checkpoint.problem
    assert problem == f"is quantised by {method}, which leaves all weights of its layers in 16 bits{named}"


@pytest.mark.parametrize(
    "blocks", ["model.layers", ["model.language_model.layers"], "model.visual.blocks,model.layers"]
)
def test_blocks_that_are_the_decoders_are_quantised(blocks: Any) -> None:
    rules = {"quant_method": "auto-round", "bits": 4, "block_name_to_quantize": blocks}
    model = read(DENSE, rules)
    assert (model.checkpoint.weights, model.notes) == ("int4", find(DENSE).notes)


def test_every_expert_of_a_list_is_there() -> None:
    layers = {
        f"model.layers.{layer}.mlp.experts.{expert}.down_proj": {"quant_algo": "NVFP4"}
        for layer in range(48)
        for expert in (0, 17, 127)
    }
    quantization = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    assert not coverage(find(MOE), quantization).unmatched


def test_experts_are_there_by_the_names_of_mixtrals_products() -> None:
    layers = {
        f"language_model.model.layers.{layer}.block_sparse_moe.experts.{expert}.w{product}": {"quant_algo": "NVFP4"}
        for layer in range(48)
        for expert in (0, 99)
        for product in (1, 2, 3)
    }
    quantization = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    covered = coverage(find(MOE), quantization)
    assert (covered.fitting, covered.unmatched) == (48 * 3, ())


def test_an_indexers_weights_stay_in_16_bits_by_the_checkpoints_name_of_them() -> None:
    """GLM-5's FP8 checkpoints leave `indexers_proj` out, which transformers calls `indexer.weights_proj`."""
    model = read("glm-5", {"quant_method": "fp8", "ignored_layers": ["model.layers.0.self_attn.indexers_proj"]})
    stored = {weight.name: weight.stored for weight in model.kinds[model.order[0]].weights}
    assert stored["self_attn.indexer.weights_proj.weight"] == "bf16"
    assert stored["self_attn.indexer.wq_b.weight"] == "fp8"
    assert not any("pattern" in note for note in model.notes)


@pytest.mark.parametrize(
    "rules",
    [
        {"dynamic": {"-:.*[": {}}},
        {"dynamic": {".*mlp.*": [8]}},
        {"modules_to_not_convert": ["re:(["]},
    ],
)
def test_rules_that_cannot_be_read_are_refused(rules: dict[str, Any]) -> None:
    problem = read(DENSE, {"quant_method": "gptq", "bits": 4, **rules}).checkpoint.problem
    assert problem.startswith("has a quantisation that cannot be read (")


def test_keys_that_nothing_reads_are_named() -> None:
    quantization = {"quant_method": "gptq", "bits": 4, "desc_act": True, "rotate_inputs": {"size": 64}, "sparse": None}
    assert unread_keys(quantization) == ["rotate_inputs"]
    assert read(DENSE, quantization).notes[-1] == (
        "Keys of the quantisation that presim does not read, so that their effect is missing: rotate_inputs."
    )
