"""Models of which transformers has the text part and the encoder, but not the class that joins them.

Sources: vLLM 0.33's model_executor/models/internvl.py and kimi_vl.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers

from presim.composition.models.export.instances import configured_part, instantiated
from presim.composition.models.export.refusal import Refusal


def _intern_vit(vision: dict[str, Any], raw: dict[str, Any], hidden: int) -> tuple[torch.nn.Module, torch.nn.Module]:
    """InternViT, and a norm and two products on pixels that are joined."""
    names = {"qkv_bias": "attention_bias", "qk_normalization": "use_qk_norm"}
    config = configured_part(transformers.InternVLVisionConfig, {names.get(key, key): vision[key] for key in vision})
    joined = int(config.hidden_size / float(raw.get("downsample_ratio") or 0.5) ** 2)
    with torch.device("meta"):
        projector = torch.nn.Sequential(
            torch.nn.LayerNorm(joined), torch.nn.Linear(joined, hidden), torch.nn.Linear(hidden, hidden)
        )
    return instantiated(transformers.InternVLVisionModel, config), projector


def _moon_vit(vision: dict[str, Any], raw: dict[str, Any], hidden: int) -> tuple[torch.nn.Module, torch.nn.Module]:
    """MoonViT, and a norm and two products on patches that are merged."""
    names = {"init_pos_emb_height": "pos_emb_height", "init_pos_emb_width": "pos_emb_width"}
    config = configured_part(transformers.Kimi_K25VisionConfig, {names.get(key, key): vision[key] for key in vision})
    merged = config.hidden_size * config.merge_kernel_size[0] * config.merge_kernel_size[1]
    with torch.device("meta"):
        projector = torch.nn.Sequential(
            torch.nn.LayerNorm(config.hidden_size), torch.nn.Linear(merged, merged), torch.nn.Linear(merged, hidden)
        )
    vision_class = transformers.models.kimi_k25.modeling_kimi_k25.Kimi_K25VisionModel
    return instantiated(vision_class, config), projector


ENCODERS: dict[str, Callable[[dict[str, Any], dict[str, Any], int], tuple[torch.nn.Module, torch.nn.Module]]] = {
    "InternVLChatModel": _intern_vit,
    "H2OVLChatModel": _intern_vit,
    "SkyworkR1VChatModel": _intern_vit,
    "InternS1ForConditionalGeneration": _intern_vit,
    "KimiVLForConditionalGeneration": _moon_vit,
}


def add_encoder(model: torch.nn.Module, raw: dict[str, Any], architecture: str, hidden: int) -> None:
    """Give a text model the encoder of the config that it is a part of.

    Raises:
        Refusal: the config has no vision_config, or the encoder's class refuses its sizes.
    """
    vision = raw.get("vision_config")
    if not isinstance(vision, dict):
        raise Refusal("has no vision_config; give the config.json published with the weights")
    encoder, projector = ENCODERS[architecture](vision, raw, hidden)
    model.add_module("vision_model", encoder)
    model.add_module("vision_projector", projector)
