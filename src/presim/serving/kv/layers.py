"""What each layer of a model keeps for a token or for a sequence, on one GPU of its tensor-parallel group."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from presim.serving.model import Model
from presim.serving.plan import Cache, kv_token_bytes

Kind = Literal["full", "latent", "sliding", "chunked", "state"]
_CONVOLUTION = 4  # taps of a delta net's short convolution (`linear_conv_kernel_dim` of Qwen3-Next and Qwen3.5)


@dataclasses.dataclass(frozen=True)
class KvLayer:
    """Layers that keep the same. Lists of them are in the order of the model, in runs of equal layers."""

    kind: Kind
    token_bytes: int = 0  # of a token in one layer; 0: a state
    window: int = 0  # tokens that a sliding or chunked layer looks back on
    state_bytes: int = 0  # of a sequence in one layer
    count: int = 1
    heads: int = 1  # KV heads of `token_bytes`, or heads of a state, on one GPU: specifications differ by them


def kv_layers(model: Model, cache: Cache = "bf16", architecture: str = "hopper", tp: int = 1) -> tuple[KvLayer, ...]:
    """The layers of a model in their order, as one of ``tp`` GPUs keeps them."""
    if model.latent is not None:
        return (KvLayer("latent", kv_token_bytes(model, cache, architecture), count=model.layers),)
    heads = max(model.kv_heads // tp, 1)
    elements = 2 * heads * model.head_dim
    token_bytes = elements * (1 if cache == "fp8" else 2)
    if cache == "int8":  # and 4 bytes for each head of keys and of values (vLLM 0.33, int8_per_token_head)
        token_bytes = 2 * heads * (model.head_dim + 4)
    full = KvLayer("full", token_bytes, heads=heads)
    if model.recurrent is not None:
        nets = model.recurrent
        mixed_bytes = 2 * (_CONVOLUTION - 1) * nets.mixed  # the last inputs of the convolution, in 16 bits
        state = KvLayer("state", state_bytes=(nets.state_bytes + mixed_bytes) // tp, heads=nets.value_heads // tp)
        return runs([state if (layer + 1) % nets.every else full for layer in range(model.layers)])
    if model.window:
        sliding = dataclasses.replace(full, kind="sliding", window=model.window)
        return runs([full if layer % 2 else sliding for layer in range(model.layers)])
    return (dataclasses.replace(full, count=model.layers),)


def runs(layers: Sequence[KvLayer]) -> tuple[KvLayer, ...]:
    """Layers in their order, with neighbours that keep the same as one entry."""
    merged: list[KvLayer] = []
    for layer in layers:
        alone = dataclasses.replace(layer, count=1)
        if merged and dataclasses.replace(merged[-1], count=1) == alone:
            merged[-1] = dataclasses.replace(layer, count=merged[-1].count + layer.count)
        else:
            merged.append(layer)
    return tuple(merged)


def every_layer(layers: Sequence[KvLayer]) -> list[KvLayer]:
    """One entry for each layer, in the order of the model."""
    return [dataclasses.replace(layer, count=1) for layer in layers for _ in range(layer.count)]
