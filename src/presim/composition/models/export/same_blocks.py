"""Architectures whose blocks another family of transformers has under other names of keys, each with its source.

vLLM 0.33's model_executor/models has the modules: internlm2.py, exaone.py, solar.py, orion.py, baichuan.py, qwen.py,
chatglm.py, minicpm.py, openpangu.py, grok1.py. Products that they fuse have the sizes of the separate ones here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers

from presim.composition.models.export.instances import configured, instantiated
from presim.composition.models.export.refusal import Refusal


@dataclasses.dataclass(frozen=True)
class SameBlocks:
    """A family of transformers with the names by which a config says its sizes."""

    family: str
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)  # the file's key: the class's key
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # what the file need not say

    def __call__(self, raw: dict[str, Any]) -> tuple[torch.nn.Module, Any]:
        """The model and its config. Raises Refusal, as `instances.configured` does."""
        return _family(self.family, {**self.values, **{self.names.get(key, key): raw[key] for key in raw}})


def _family(family: str, raw: dict[str, Any]) -> tuple[torch.nn.Module, Any]:
    config = configured(getattr(transformers, f"{family}Config"), raw)
    return instantiated(getattr(transformers, f"{family}ForCausalLM"), config), config


def _qwen(raw: dict[str, Any]) -> tuple[torch.nn.Module, Any]:
    """Qwen 1: Qwen2 with as many KV heads as heads, and an `intermediate_size` for gate and up-projection together."""
    raw |= {"num_key_value_heads": raw.get("num_attention_heads"), "tie_word_embeddings": False}
    raw["intermediate_size"] = raw.get("intermediate_size", 0) // 2
    return _family("Qwen2", raw)


def _minicpm(raw: dict[str, Any]) -> tuple[torch.nn.Module, Any]:
    if raw.get("num_experts"):
        raise Refusal(f"has {raw['num_experts']} experts, which presim knows of no MiniCPM; report it")
    raw.setdefault("tie_word_embeddings", True)
    return _family("Llama", raw)


def _chatglm(raw: dict[str, Any]) -> tuple[torch.nn.Module, Any]:
    """ChatGLM2, ChatGLM3 and GLM-4: blocks of transformers' Glm, without its vision part."""
    if raw.get("vision_config"):
        raise Refusal("reads images (vision_config) by code that transformers does not have")
    groups = raw.pop("multi_query_group_num", None) if raw.get("multi_query_attention") else None
    raw["num_key_value_heads"] = groups or raw.get("num_attention_heads")
    names = {
        "num_layers": "num_hidden_layers", "ffn_hidden_size": "intermediate_size", "kv_channels": "head_dim",
        "padded_vocab_size": "vocab_size", "seq_length": "max_position_embeddings", "add_qkv_bias": "attention_bias",
    }  # fmt: skip
    plain = {"tie_word_embeddings": False, "pad_token_id": None}
    return _family("Glm", plain | {names.get(key, key): value for key, value in raw.items()})


def _grok(raw: dict[str, Any]) -> tuple[torch.nn.Module, Any]:
    """Grok-1: Mixtral with a norm after attention and one after the experts."""
    if raw.get("residual_moe"):
        raise Refusal("has a dense feed-forward beside its experts (residual_moe), which presim does not know")
    model, config = _family("Mixtral", {"tie_word_embeddings": True, **raw})
    with torch.device("meta"):
        for layer in model.model.layers:  # type: ignore[union-attr]
            layer.post_mixer_norm = type(layer.input_layernorm)(config.hidden_size)
            layer.post_experts_norm = type(layer.input_layernorm)(config.hidden_size)
    return model, config


_NO_BIAS = {"attention_bias": False}
MODELS: dict[str, Callable[[dict[str, Any]], tuple[torch.nn.Module, Any]]] = {
    "InternLM2ForCausalLM": SameBlocks("Llama", {"bias": "attention_bias"}),
    "ExaoneForCausalLM": SameBlocks("Llama", {"num_layers": "num_hidden_layers"}, _NO_BIAS),
    "SolarForCausalLM": SameBlocks("Llama"),
    "OrionForCausalLM": SameBlocks("StableLm", {"rms_norm_eps": "layer_norm_eps"}, {"use_qkv_bias": False}),
    "StableLMEpochForCausalLM": SameBlocks("StableLm"),
    "BaiChuanForCausalLM": SameBlocks("Llama", values=_NO_BIAS),
    "BaichuanForCausalLM": SameBlocks("Llama", values=_NO_BIAS),
    "PanguEmbeddedForCausalLM": SameBlocks("Llama", {"bias": "attention_bias"}),
    "QWenLMHeadModel": _qwen,
    "MiniCPMForCausalLM": _minicpm,
    "ChatGLMModel": _chatglm,
    "ChatGLMForConditionalGeneration": _chatglm,
    "Grok1ModelForCausalLM": _grok,
    "Grok1ForCausalLM": _grok,
}
