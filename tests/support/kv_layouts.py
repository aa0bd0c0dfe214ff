"""Layers of published models as an engine's cache sees them, and vLLM's own answer about each of them.

``python -m support.kv_layouts`` asks an installed vLLM and prints what tests/unit/serving/kv/vllm_groups.json has.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from typing import Any

from presim.composition.models.decoder_layers import Compressed, Indexer, Layer
from presim.composition.models.description import Model
from presim.serving.kv.kv_groups import block_tokens_for
from presim.serving.kv.kv_layers import KvLayer, every_layer, kv_layers, runs

LENGTH = 131072
IN_FLIGHT = 16384
STATES = 2


@dataclasses.dataclass(frozen=True)
class Layout:
    """A model's layers on one GPU."""

    layers: tuple[KvLayer, ...]
    block_tokens: int = 16


def _attention(heads: int, head_dim: int, window: int = 0, kind: str = "", byte_count: int = 2) -> KvLayer:
    chosen: Any = kind or ("sliding" if window else "full")
    return KvLayer(chosen, 2 * heads * head_dim * byte_count, window, heads=heads)


def _state(state_bytes: int, heads: int = 1) -> KvLayer:
    return KvLayer("state", state_bytes=state_bytes, heads=heads)


def _repeated(pattern: list[KvLayer], times: int, rest: tuple[KvLayer, ...] = ()) -> tuple[KvLayer, ...]:
    return runs([*pattern * times, *rest])


def _compressed(ratios: list[int]) -> list[KvLayer]:
    """DeepSeek-V4's, as its `compress_ratios` say; those of 4 tokens have an indexer."""
    layers = [_attends(ratio) for ratio in ratios]
    model = Model("", "", "", 1, 1, LENGTH, tuple(layers), tuple(range(len(layers))), ())
    return list(kv_layers(model))


def _attends(ratio: int) -> Layer:
    indexer = Indexer(64, 128, 512) if ratio == 4 else None
    return Layer((Compressed(64, 512, 1024, 8, 1024, 128, ratio, indexer),), (), ())


_GEMMA3 = [_attention(16, 128, 1024)] * 5 + [_attention(16, 128)]
_DELTA = [_state(48 * 128 * 128 * 4 + 3 * 10240 * 2, 48)] * 3 + [_attention(4, 256)]

# One line a model: its name, and its layers as config.json publishes them.
LAYOUTS: dict[str, Layout] = {
    "llama3-8b": Layout(_repeated([_attention(8, 128)], 32)),
    "deepseek-v3, blocks of 64": Layout((KvLayer("latent", 1152, count=61),), 64),
    "gpt-oss-120b, tp 2": Layout(_repeated([_attention(4, 64, 128), _attention(4, 64)], 18)),
    "gpt-oss-20b with an EAGLE head": Layout(
        _repeated([_attention(8, 64, 128), _attention(8, 64)], 12, (_attention(8, 64),))
    ),
    "gemma-3-27b": Layout(_repeated(_GEMMA3, 10, (_attention(16, 128, 1024),) * 2)),
    "gemma-4-31b": Layout(_repeated([_attention(16, 256, 1024)] * 5 + [_attention(4, 512)], 10)),
    "olmo-3-32b": Layout(_repeated([_attention(8, 128, 4096)] * 3 + [_attention(8, 128)], 16)),
    "llama-4-maverick, tp 8": Layout(_repeated([_attention(1, 128, 8192, "chunked")] * 3 + [_attention(1, 128)], 12)),
    "qwen3.6-27b": Layout(_repeated(_DELTA, 16)),
    "qwen3.6-27b, fp8 cache": Layout(_repeated([*_DELTA[:3], _attention(4, 256, byte_count=1)], 16)),
    "qwen3.6-27b with an MTP layer": Layout(_repeated(_DELTA, 16, (_attention(4, 256),))),
    "nemotron-3-nano-30b": Layout(
        _repeated(
            [_state(64 * 64 * 128 * 4 + 3 * 6144 * 2, 64)] * 4 + [_attention(2, 128)],
            5,
            (_state(64 * 64 * 128 * 4 + 3 * 6144 * 2, 64),) * 3,
        )
    ),
    "jamba-mini": Layout(
        _repeated(
            [_state(8192 * 16 * 4 + 3 * 8192 * 2)] * 4
            + [_attention(8, 128)]
            + [_state(8192 * 16 * 4 + 3 * 8192 * 2)] * 3,
            4,
        )
    ),
    "lfm2-1.2b": Layout(
        _repeated([_state(2 * 2048 * 2), _state(2 * 2048 * 2), _attention(8, 64)], 5, (_state(2 * 2048 * 2),))
    ),
    "ministral, all layers with a window": Layout((dataclasses.replace(_attention(8, 128, 4096), count=26),)),
    "full layers of two widths": Layout(_repeated([_attention(8, 128), _attention(4, 128)], 9)),
    "windows whose page does not divide": Layout(_repeated([_attention(3, 128, 512), _attention(8, 128)], 8)),
    "two windows": Layout(_repeated([_attention(8, 64, 128), _attention(8, 64, 512), _attention(8, 64)], 6)),
    "pure states": Layout((dataclasses.replace(_state(1 << 20), count=48),)),
    "deepseek-v4-flash": Layout(runs(_compressed([0, 0, *[4, 128] * 20, 4]))),
    "deepseek-v4-pro": Layout(runs(_compressed([128, 128, *[4, 128] * 29, 4]))),
    "kimi-linear-48b": Layout(
        _repeated(
            [_state(32 * 128 * 128 * 4 + 3 * 12288 * 2, 32)] * 3 + [KvLayer("latent", 1152)],
            6,
            (_state(32 * 128 * 128 * 4 + 3 * 12288 * 2, 32),) * 3,
        )
    ),
}


def vllm_answer(layout: Layout) -> dict[str, Any]:
    """What vLLM makes of the same layers: its groups, the bytes of a page, and the pages of a long request."""
    import torch
    from vllm.v1.core import kv_cache_planning as planning
    from vllm.v1.kv_cache_interface import (
        ChunkedLocalAttentionSpec,
        FullAttentionSpec,
        MambaSpec,
        MLAAttentionSpec,
        SlidingWindowMLASpec,
        SlidingWindowSpec,
        UniformTypeKVCacheSpecs,
    )
    from vllm.v1.kv_cache_layout import KVCacheLayout

    block = block_tokens_for(layout.layers, layout.block_tokens)  # vLLM asks its platform and the model's class
    attends = [layer for layer in layout.layers if layer.kind != "state"]
    page = block * attends[0].token_bytes if attends else None

    def spec(layer: KvLayer) -> Any:
        if layer.kind == "state":
            return MambaSpec(
                block_size=block,
                shapes=((layer.state_bytes // 2,),),
                dtypes=(torch.bfloat16,),
                page_size_padded=page,
                mamba_cache_mode="align",
            )
        if layer.page_bytes:
            packed = {"block_size": layer.page_tokens, "num_kv_heads": 1, "dtype": torch.uint8, "head_size": 1}
            packed |= {"page_size_padded": layer.page_bytes, "model_version": "deepseek_v4"}
            if layer.window:
                return SlidingWindowMLASpec(**packed, sliding_window=layer.window)
            return MLAAttentionSpec(**packed)
        dtype = torch.bfloat16
        if layer.kind == "latent":
            return MLAAttentionSpec(block_size=block, num_kv_heads=1, head_size=layer.token_bytes // 2, dtype=dtype)
        common = {"block_size": block, "num_kv_heads": layer.heads, "dtype": dtype}
        common["head_size"] = layer.token_bytes // layer.heads // 4
        if layer.kind == "sliding":
            return SlidingWindowSpec(**common, sliding_window=layer.window)
        if layer.kind == "chunked":
            return ChunkedLocalAttentionSpec(**common, attention_chunk_size=layer.window)
        return FullAttentionSpec(**common)

    is_packed = any(layer.page_bytes for layer in layout.layers)
    _Config.cache_config.layout = KVCacheLayout.BLNHC if is_packed else KVCacheLayout.LBNHC
    config = _Config()
    specs = {f"{number}": spec(layer) for number, layer in enumerate(every_layer(layout.layers))}
    groups = planning.get_kv_cache_groups(config, specs)  # type: ignore[arg-type]
    pages = 0
    for group in groups:
        kept = group.kv_cache_spec
        if isinstance(kept, UniformTypeKVCacheSpecs):
            pages += kept.max_memory_usage_pages(config)  # type: ignore[arg-type]
        else:
            pages += math.ceil(kept.max_memory_usage_bytes(config) / kept.page_size_bytes)  # type: ignore[arg-type]
    return {
        "groups": sorted([sorted(map(int, group.layer_names)) for group in groups]),
        "block_tokens": sorted({group.kv_cache_spec.block_size for group in groups}),
        "page_bytes": planning._get_kv_cache_bytes_per_block(groups, config.cache_config.layout),
        "pages": pages,
    }


class _Config:
    """What vLLM's planning reads of its configuration."""

    class model_config:
        max_model_len = LENGTH
        original_max_model_len = LENGTH

    class parallel_config:
        decode_context_parallel_size = 1

    class scheduler_config:
        disable_hybrid_kv_cache_manager = False

    class cache_config:
        mamba_cache_mode = "align"
        layout: Any = None

        @classmethod
        def get_resolved_kv_cache_layout(cls) -> Any:
            return cls.layout

    class attention_config:
        hisparse_config = None

    max_in_flight_tokens = IN_FLIGHT


if __name__ == "__main__":
    sys.stdout.write(json.dumps({name: vllm_answer(layout) for name, layout in LAYOUTS.items()}, sort_keys=True) + "\n")
