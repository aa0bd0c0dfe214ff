"""Architectures that engines serve with the classes of another model of transformers, each with its source."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch
import transformers

from presim.composition.models.export import bailing, same_blocks
from presim.composition.models.export.instances import configured, instantiated
from presim.composition.models.export.refusal import Refusal

# vLLM 0.33's registry serves these by the other class (model_executor/models/registry.py), or by a subclass that adds
# only a layer for further tokens (mimo.py).
RENAMED = {
    "LLaMAForCausalLM": "LlamaForCausalLM",
    "TeleChat3ForCausalLM": "LlamaForCausalLM",
    "IQuestCoderForCausalLM": "LlamaForCausalLM",
    "PhiMoEForCausalLM": "PhimoeForCausalLM",
    "MiMoForCausalLM": "Qwen2ForCausalLM",
    "Rnj1ForCausalLM": "Gemma3ForCausalLM",
    "InternLMForCausalLM": "LlamaForCausalLM",
    "InternLM3ForCausalLM": "LlamaForCausalLM",
    "XverseForCausalLM": "LlamaForCausalLM",
    "AquilaForCausalLM": "LlamaForCausalLM",
    "AquilaModel": "LlamaForCausalLM",
    "MiniMaxM3ForCausalLM": "MiniMaxM3VLForCausalLM",  # the text part alone
    "MiniMaxM3SparseForCausalLM": "MiniMaxM3VLForCausalLM",
}


def _minimax_m1(raw: dict[str, Any]) -> tuple[torch.nn.Module, Any]:
    """MiniMax-M1 and -Text-01: transformers' MiniMax with the layers by `attn_type_list` (1: softmax, 0: lightning)."""
    kinds = raw.pop("attn_type_list", None)
    if kinds is not None:
        raw["layer_types"] = ["full_attention" if kind else "linear_attention" for kind in kinds]
    config = configured(transformers.MiniMaxConfig, raw)
    return instantiated(transformers.MiniMaxForCausalLM, config), config


def _nemotron_nas(raw: dict[str, Any]) -> tuple[torch.nn.Module, Any]:
    """Llama's blocks with heads, widths and absences by `block_configs`, as vLLM 0.33's nemotron_nas.py has them."""
    blocks = raw.pop("block_configs", None)
    if not isinstance(blocks, list) or len(blocks) != raw.get("num_hidden_layers"):
        raise Refusal("has no block_configs for each of its num_hidden_layers; give the published config.json")
    raw |= {"intermediate_size": 1, "num_key_value_heads": raw.get("num_attention_heads")}
    raw.pop("rope_scaling", None)
    config = configured(transformers.LlamaConfig, raw)
    model = instantiated(transformers.LlamaForCausalLM, config)
    with torch.device("meta"):
        for index, (layer, block) in enumerate(zip(model.model.layers, blocks)):  # type: ignore[union-attr,arg-type]
            _set_block(layer, block, config, index)
    return model, config


def _set_block(layer: Any, block: dict[str, Any], config: Any, index: int) -> None:
    from transformers.models.llama.modeling_llama import LlamaAttention, LlamaMLP

    attention, feed_forward = block["attention"], block["ffn"]
    block_config = copy.copy(config)
    layer.self_attn = torch.nn.Identity()
    layer.mlp = torch.nn.Identity()
    if attention.get("replace_with_linear") or feed_forward.get("replace_with_linear"):
        raise Refusal(f"replaces a part of layer {index} by a linear layer, which vLLM does not serve")
    if attention.get("no_op"):
        layer.input_layernorm = torch.nn.Identity()
    else:
        block_config.num_key_value_heads = config.num_attention_heads // attention["n_heads_in_group"]
        layer.self_attn = LlamaAttention(block_config, index)
    if feed_forward.get("no_op"):
        layer.post_attention_layernorm = torch.nn.Identity()
    else:
        block_config.intermediate_size = _nas_width(feed_forward, config.hidden_size)
        layer.mlp = LlamaMLP(block_config)  # type: ignore[no-untyped-call]


def _nas_width(feed_forward: dict[str, Any], hidden: int) -> int:
    """Two thirds of 4 x hidden x `ffn_mult`, up to the next multiple of 256, as in Llama."""
    if feed_forward.get("intermediate_size"):
        return int(feed_forward["intermediate_size"])
    width = int(2 * feed_forward["ffn_mult"] * hidden / 3)
    return -(-width // 256) * 256


def _mimo_v2(raw: dict[str, Any]) -> tuple[torch.nn.Module, Any]:
    """transformers' MiMo-V2 with the published names of its patterns: 1 is a window, and experts."""
    windows, sparse = raw.pop("hybrid_layer_pattern", None), raw.pop("moe_layer_freq", None)
    if windows is not None:
        raw["layer_types"] = ["sliding_attention" if window else "full_attention" for window in windows]
    if isinstance(sparse, list):
        raw["mlp_layer_types"] = ["sparse" if layer else "dense" for layer in sparse]
    full, sliding = raw.get("num_key_value_heads"), raw.pop("swa_num_key_value_heads", None)
    if sliding is not None and sliding != 2 * (full or 0):
        raise Refusal(
            f"has {sliding} KV heads in layers with a window and {full} in others; presim knows twice as many"
        )
    config = configured(transformers.MiMoV2FlashConfig, raw)
    return instantiated(transformers.MiMoV2FlashForCausalLM, config), config


def _step3p7(raw: dict[str, Any]) -> tuple[torch.nn.Module, Any]:
    """Step-3.7's text part alone: transformers' class with encoders, without them."""
    if "num_experts" in raw:
        raw["n_routed_experts"] = raw.pop("num_experts")
    dense = raw.pop("first_k_dense_replace", 3)
    raw.setdefault("moe_layers_enum", list(range(dense, raw.get("num_hidden_layers", 0))))
    config = configured(transformers.Step3p7Config, {"text_config": raw})
    model = instantiated(transformers.Step3p7ForConditionalGeneration, config)
    for name in [name for name, _ in model.model.named_children() if name != "language_model"]:  # type: ignore[union-attr]
        delattr(model.model, name)
    return model, config


def _thinker(name: str) -> Callable[[dict[str, Any]], tuple[torch.nn.Module, Any]]:
    """The part of Qwen's Omni models that reads and writes text; engines serve no other."""

    def build(raw: dict[str, Any]) -> tuple[torch.nn.Module, Any]:
        model_class = getattr(transformers, f"{name}ForConditionalGeneration")
        config = configured(model_class.config_class, raw.get("thinker_config") or raw)
        return instantiated(model_class, config), config

    return build


MODELS: dict[str, Callable[[dict[str, Any]], tuple[torch.nn.Module, Any]]] = {
    **same_blocks.MODELS,
    **bailing.MODELS,
    "MiniMaxM1ForCausalLM": _minimax_m1,
    "MiniMaxText01ForCausalLM": _minimax_m1,
    "DeciLMForCausalLM": _nemotron_nas,
    "MiMoV2FlashForCausalLM": _mimo_v2,
    "MiMoV2ForCausalLM": _mimo_v2,
    "Step3p7FlashForCausalLM": _step3p7,
    "Step3p5ForCausalLM": _step3p7,
    "Qwen2_5OmniModel": _thinker("Qwen2_5OmniThinker"),
    "Qwen2_5OmniForConditionalGeneration": _thinker("Qwen2_5OmniThinker"),
    "Qwen3OmniMoeForConditionalGeneration": _thinker("Qwen3OmniMoeThinker"),
}


def source(architecture: str) -> str:
    """The code that reads the config of one of these architectures."""
    holders = [module for module in (same_blocks, bailing) if architecture in module.MODELS]
    return "".join(inspect.getsource(module) for module in holders) or inspect.getsource(sys.modules[__name__])
