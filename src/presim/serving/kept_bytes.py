"""What a layer keeps on one GPU: bytes of a token, and bytes of a sequence's state."""

from __future__ import annotations

from typing import Literal

from presim.composition.models.decoder_layers import Attention, Cached, Compressed, Indexer, Latent, Recurrent
from presim.composition.models.description import Model
from presim.serving.kv import compressed
from presim.serving.serving_plan import Cache

StateType = Literal["bf16", "float32"]


def token_bytes(mixer: Cached, cache: Cache, architecture: str, tp: int = 1) -> int:
    """Bytes that one layer keeps of a token on one of ``tp`` GPUs of an architecture."""
    size = 1 if cache == "fp8" else 2
    if isinstance(mixer, Latent):
        if mixer.sparse_keys:
            return _sparse_token_bytes(mixer, cache, architecture)
        return mixer.token_elements * size // (tp if mixer.expanded else 1)
    if isinstance(mixer, Compressed):
        return compressed.token_bytes(mixer)
    heads = max(mixer.kv_heads // tp, 1)
    if mixer.reuses_cache:
        return 0
    of_indexer = 2 * mixer.indexer.dim if mixer.indexer else 0  # a key in 16 bits, which every rank keeps
    if cache == "int8":  # and 4 bytes for each head of keys and of values (vLLM 0.33, int8_per_token_head)
        return heads * (mixer.head_dim + mixer.value_dim + 8) + of_indexer
    return heads * (mixer.head_dim + mixer.value_dim) * size + of_indexer


def _sparse_token_bytes(mixer: Latent, cache: Cache, architecture: str) -> int:
    """Of sparse attention (DeepSeek-V3.2, GLM-5), as vLLM 0.33 keeps it.

    The indexer's key is in FP8 with a factor for each 128 elements. FlashMLA's FP8 format keeps four factors and the
    rotary part in 16 bits (656 bytes for 512 + 64 elements); the kernels for sm_120 know no other.
    """
    of_indexer = _indexer_bytes(mixer.indexer) if mixer.indexer else 0
    if architecture == "blackwell-rtx" or (cache == "fp8" and architecture != "blackwell"):
        return of_indexer + mixer.rank + 4 * mixer.rank // 128 + 2 * mixer.rope
    return of_indexer + (mixer.rank + mixer.rope) * (1 if cache == "fp8" else 2)


def _indexer_bytes(indexer: Indexer) -> int:
    return indexer.dim + 4 * indexer.dim // 128


def state_bytes(mixer: Recurrent, state_type: StateType, tp: int = 1, drafted_tokens: int = 0) -> int:
    """Bytes of a sequence's state in one layer on one of ``tp`` GPUs, with the convolution's inputs in 16 bits.

    ``drafted_tokens``: vLLM keeps the convolution's inputs of so many more (0.33, `MambaStateShapeCalculator`).
    """
    convolved = mixer.convolved + drafted_tokens * mixer.mixed
    return (mixer.state_elements * (4 if state_type == "float32" else 2) + 2 * convolved) // tp


def model_token_bytes(model: Model, cache: Cache, architecture: str) -> int:
    """Bytes that all layers keep of a token, on all ranks together; windows as if they kept all tokens."""
    return sum(
        count * token_bytes(mixer, cache, architecture) for layer, count in model.counts() for mixer in layer.cached
    )


def model_state_bytes(model: Model) -> int:
    """Bytes that all layers keep of a sequence beside its tokens, on all ranks together."""
    return sum(
        count * state_bytes(mixer, model.state_type) for layer, count in model.counts() for mixer in layer.recurrent
    )


def kv_heads(mixer: Cached) -> int:
    """Heads over which ranks divide what is kept; 1: every rank keeps all of it."""
    if isinstance(mixer, Latent) and mixer.expanded:
        return mixer.heads
    return mixer.kv_heads if isinstance(mixer, Attention) else 1
