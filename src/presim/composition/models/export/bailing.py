"""Ling and Ring (Bailing), and DeepSeek's first mixture: transformers' Glm4Moe and DeepseekV3 with their keys.

Sources: vLLM 0.33's model_executor/models/bailing_moe.py and bailing_moe_linear.py; deepseek_v2.py for the first
DeepSeek.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers

from presim.composition.models.export.instances import configured, instantiated
from presim.composition.models.export.refusal import Refusal


def _with_attention(raw: dict[str, Any]) -> tuple[torch.nn.Module, Any]:
    config = configured(transformers.Glm4MoeConfig, _shared_width(raw))
    return instantiated(transformers.Glm4MoeForCausalLM, config), config


def _shared_width(raw: dict[str, Any]) -> dict[str, Any]:
    """The keys of a mixture as Glm4Moe and DeepseekV3 name them."""
    if raw.get("use_bias"):
        raise Refusal("has biases in its linear layers (use_bias), which presim knows of no Ling")
    count, width = raw.get("num_shared_experts") or 0, raw.get("moe_intermediate_size") or 1
    shared = count * (raw.pop("moe_shared_expert_intermediate_size", None) or width)
    if shared % width:
        raise Refusal(f"has shared experts of {shared} elements, no multiple of moe_intermediate_size = {width}")
    plain = {"tie_word_embeddings": False, "first_k_dense_replace": 0, "n_group": 1, "topk_group": 1} | raw
    return plain | {
        "n_routed_experts": raw.get("num_experts"),
        "n_shared_experts": shared // width,
        "attention_bias": bool(raw.get("use_qkv_bias")),
    }


def _ling(raw: dict[str, Any]) -> tuple[torch.nn.Module, Any]:
    return _with_attention({"use_qk_norm": False, **raw})


def _ling_2(raw: dict[str, Any]) -> tuple[torch.nn.Module, Any]:
    return _with_attention({"use_qk_norm": True, "first_k_dense_replace": 1, **raw})


def _deepseek(raw: dict[str, Any]) -> tuple[torch.nn.Module, Any]:
    """DeepSeek-MoE: attention of all heads, and experts beside shared ones in all but the first layers."""
    if raw.get("moe_layer_freq", 1) != 1:
        raise Refusal(f"has moe_layer_freq = {raw['moe_layer_freq']}; presim knows experts in every layer")
    plain = {"use_qk_norm": False, "tie_word_embeddings": False, "n_group": 1, "topk_group": 1} | raw
    config = configured(transformers.Glm4MoeConfig, plain)
    return instantiated(transformers.Glm4MoeForCausalLM, config), config


class _LinearAttention(torch.nn.Module):
    """Ling 2.5's lightning attention: queries, keys and values of all heads, norms, and a gate of the output."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        width = config.num_attention_heads * config.head_dim
        self.head_dim = config.head_dim
        self.qkv_proj = torch.nn.Linear(config.hidden_size, 3 * width, bias=False)
        self.g_proj = torch.nn.Linear(config.hidden_size, width, bias=False)
        self.o_proj = torch.nn.Linear(width, config.hidden_size, bias=False)
        self.g_norm = torch.nn.RMSNorm(width)
        self.q_norm, self.k_norm = torch.nn.RMSNorm(config.head_dim), torch.nn.RMSNorm(config.head_dim)


def _ling_2_5(raw: dict[str, Any]) -> tuple[torch.nn.Module, Any]:
    """DeepseekV3 whose layers have latent attention only at the end of each group of `layer_group_size`."""
    head_dim, group = raw.pop("head_dim", None), raw.get("layer_group_size") or 1
    config = configured(transformers.DeepseekV3Config, _shared_width({"first_k_dense_replace": 1, **raw}))
    config.num_key_value_heads = config.num_attention_heads  # of latent attention
    model = instantiated(transformers.DeepseekV3ForCausalLM, config)
    config.head_dim = head_dim or config.hidden_size // config.num_attention_heads
    whole_groups = config.num_hidden_layers // group * group
    with torch.device("meta"):
        for index, layer in enumerate(model.model.layers):  # type: ignore[union-attr,arg-type]
            if (index + 1) % group and index < whole_groups:
                layer.self_attn = _LinearAttention(config)
    return model, config


MODELS = {
    "BailingMoeForCausalLM": _ling,
    "BailingMoeV2ForCausalLM": _ling_2,
    "BailingMoeV2_5ForCausalLM": _ling_2_5,
    "DeepseekForCausalLM": _deepseek,
}
