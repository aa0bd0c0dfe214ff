"""What each layer of a model keeps for a token or for a sequence, on one GPU of its tensor-parallel group."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from presim.composition.models.decoder_layers import Attention, Cached, Compressed, Latent, Recurrent
from presim.composition.models.description import Model
from presim.serving.kept_bytes import kv_heads, state_bytes, token_bytes
from presim.serving.kv.compressed import pages_of
from presim.serving.serving_plan import Cache

Kind = Literal["full", "latent", "sliding", "chunked", "state"]


@dataclasses.dataclass(frozen=True)
class KvLayer:
    """Layers that keep the same. Lists of them are in the order of the model, in runs of equal layers."""

    kind: Kind
    token_bytes: int = 0  # of a token in one layer; 0: a state
    window: int = 0  # tokens that a sliding or chunked layer looks back on
    state_bytes: int = 0  # of a sequence in one layer
    count: int = 1
    page_tokens: int = 0  # of pages that a model sets by itself; 0: the engine's block size
    page_bytes: int = 0  # of these
    heads: int = 1  # KV heads of `token_bytes`, or heads of a state, on one GPU: specifications differ by them


def kv_layers(
    model: Model, cache: Cache = "bf16", architecture: str = "hopper", tp: int = 1, drafted_tokens: int = 0
) -> tuple[KvLayer, ...]:
    """The layers of a model in their order, as one of ``tp`` GPUs keeps them.

    ``drafted_tokens``: of a step, where states keep the convolution's inputs of them, too.
    """
    layers: list[KvLayer] = []
    for kind in model.order:
        for mixer in model.kinds[kind].cached:
            layers += _of_tokens(mixer, cache, architecture, tp)
        layers += [_of_states(mixer, model, tp, drafted_tokens) for mixer in model.kinds[kind].recurrent]
    return runs(layers)


def _of_tokens(mixer: Cached, cache: Cache, architecture: str, tp: int) -> list[KvLayer]:
    """What attention keeps of each token; nothing where it reads another layer's."""
    if isinstance(mixer, Compressed):
        return [
            KvLayer("sliding" if page.window else "full", window=page.window, page_tokens=page.tokens, page_bytes=size)
            for page in pages_of(mixer)
            for size in page.sizes
        ]
    if not (stored := token_bytes(mixer, cache, architecture, tp)):
        return []
    kind: Kind = "latent" if isinstance(mixer, Latent) and not mixer.expanded else "full"
    window = mixer.window if isinstance(mixer, Attention) else 0
    if isinstance(mixer, Attention) and window:
        kind = "chunked" if mixer.is_chunked else "sliding"
    return [KvLayer(kind, stored, window, heads=max(kv_heads(mixer) // tp, 1))]


def _of_states(mixer: Recurrent, model: Model, tp: int, drafted_tokens: int) -> KvLayer:
    heads = getattr(mixer, "value_heads", 0) or getattr(mixer, "heads", 0) or 1
    size = state_bytes(mixer, model.state_type, tp, drafted_tokens)
    return KvLayer("state", state_bytes=size, heads=max(heads // tp, 1))


def runs(layers: Sequence[KvLayer]) -> tuple[KvLayer, ...]:
    """Layers in their order, with neighbours that keep the same as one entry."""
    merged: list[KvLayer] = []
    for layer in layers:
        single_layer = dataclasses.replace(layer, count=1)
        if merged and dataclasses.replace(merged[-1], count=1) == single_layer:
            merged[-1] = dataclasses.replace(layer, count=merged[-1].count + layer.count)
        else:
            merged.append(layer)
    return tuple(merged)


def every_layer(layers: Sequence[KvLayer]) -> list[KvLayer]:
    """One entry for each layer, in the order of the model."""
    return [dataclasses.replace(layer, count=1) for layer in layers for _ in range(layer.count)]
