"""A model's shapes from Hugging Face's config, for frameworks that configure models by their sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from presim.errors import InputError
from presim.system.files import FormatError, decode_settings_json, read_bytes

_FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe")  # RMSNorm, rotary positions, gated FFN
_MOST = 1 << 31
_OPTIONAL = (
    "num_local_experts",
    "num_experts",
    "moe_intermediate_size",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "num_experts_per_tok",
)
_DENSE = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "vocab_size")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shapes:
    """A decoder with RMSNorm, rotary positions and gated feed-forward layers."""

    family: str  # Hugging Face's model_type
    layers: int
    hidden: int
    feed_forward: int  # of a dense block, or of one expert
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    positions: int  # maximum sequence length
    rotary_base: float
    epsilon: float
    is_tied: bool  # the output layer shares the embedding's weights
    experts: int = 0
    experts_per_token: int = 0

    @property
    def has_query_bias(self) -> bool:
        """Whether attention projections have biases."""
        return self.family == "qwen2"

    @property
    def has_query_norm(self) -> bool:
        """Whether queries and keys are normalised."""
        return self.family in ("qwen3", "qwen3_moe")


def read_config(path: Path) -> dict[str, Any]:
    """Read a ``config.json``.

    Raises:
        InputError: it cannot be read.
    """
    try:
        config = decode_settings_json(read_bytes(path, "name another model"))
    except FormatError as error:
        raise InputError(f"cannot read the model's config {path}: {error}; name another model") from error
    if not isinstance(config, dict):
        raise InputError(f"{path} is not a JSON object; name a folder with Hugging Face's config.json")
    return config


def shapes(config: Mapping[str, Any]) -> Shapes:
    """The shapes in a config.

    Raises:
        InputError: the model is of another family, or lacks a size.
    """
    family = str(config.get("model_type", ""))
    if family not in _FAMILIES:
        raise InputError(f"launch files support {', '.join(_FAMILIES)}, not models of type {family or 'unknown'}")
    if missing := [name for name in _DENSE if not config.get(name)]:
        raise InputError(f"the config lacks {missing[0]}; add it")
    for name in (*_DENSE, *_OPTIONAL):
        size = config.get(name) or 0
        if type(size) is not int or not 0 <= size <= _MOST:
            raise InputError(f"the config has {name} = {size!r}; a size is a whole number up to {_MOST:,}")
    experts = config.get("num_local_experts") or config.get("num_experts") or 0
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    rope = config.get("rope_parameters") or {}
    return Shapes(
        family=family,
        layers=config["num_hidden_layers"],
        hidden=hidden,
        feed_forward=config.get("moe_intermediate_size") or config["intermediate_size"],
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_size=config.get("head_dim") or hidden // heads,
        vocabulary=config["vocab_size"],
        positions=config.get("max_position_embeddings") or 0,
        rotary_base=float(config.get("rope_theta") or rope.get("rope_theta") or 10000.0),
        epsilon=float(config.get("rms_norm_eps") or 1e-6),
        is_tied=bool(config.get("tie_word_embeddings", False)),
        experts=experts,
        experts_per_token=config.get("num_experts_per_tok") or 0,
    )
