"""Layers of vLLM as operators of a graph, where vLLM runs kernels of its own.

Attention becomes PyTorch's operator, after the kernel that writes keys and values to the cache; sliding windows are
left out. Each normalization, activation and rotary embedding is one kernel, which vLLM launches or lets its compiler
fuse. Experts are two launches of vLLM's `fused_moe_kernel`, with tokens spread evenly. Latent attention expands keys
and values, as for prompts.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

from presim.composition.graph.libraries.library_kernels import launch

Forward: TypeAlias = Callable[..., Any]
_FUSED = ("layernorm", "activation", "rotary_embedding")  # modules of layers that are one kernel


def record(model: torch.nn.Module, sizes: Sequence[int]) -> None:
    """Make layers record the kernels they launch; ``sizes``: number of prompts and tokens per prompt at each call."""
    from vllm.model_executor.custom_op import CustomOp
    from vllm.model_executor.layers.attention import Attention, MLAAttention
    from vllm.model_executor.layers.fused_moe.runner.moe_runner import MoERunner

    _unshare(model)
    for layer in model.modules():
        if isinstance(layer, Attention):
            layer.forward = _attention(layer, sizes)  # type: ignore[method-assign]
        elif isinstance(layer, MLAAttention):
            layer.forward = _latent_attention(layer, sizes)  # type: ignore[method-assign]
        elif isinstance(layer, MoERunner):
            layer.forward = _experts(layer)  # type: ignore[method-assign]
        elif hasattr(layer, "_use_min_latency_gemm"):
            setattr(layer, "_use_min_latency_gemm", False)  # noqa: B010 a product for few tokens
        elif isinstance(layer, CustomOp) and any(part in type(layer).__module__ for part in _FUSED):
            layer.forward = _as_one_kernel(layer)  # type: ignore[method-assign]


def _unshare(model: torch.nn.Module) -> None:
    """Give each block its own rotary embedding, so that its kernel is known to belong to the block."""
    seen = set()
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if child in seen:
                parent._modules[name] = copy.copy(child)
            seen.add(child)


def _attention(layer: Any, sizes: Sequence[int]) -> Forward:
    def forward(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        launch("reshape_and_cache_flash_kernel", [key, value], [_empty(key), _empty(value)])
        parts = (
            (query, layer.num_heads, layer.head_size),
            (key, layer.num_kv_heads, layer.head_size),
            (value, layer.num_kv_heads, layer.head_size_v),
        )
        return _causal_attention(*(_heads(tensor, sizes, count, size) for tensor, count, size in parts))

    return forward


def _latent_attention(layer: Any, sizes: Sequence[int]) -> Forward:
    def forward(
        query: torch.Tensor, latent: torch.Tensor, key: torch.Tensor, *args: Any, **kwargs: Any
    ) -> torch.Tensor:
        launch("concat_and_cache_mla_kernel", [latent, key], [_empty(latent), _empty(key)])
        heads, key_width, value_width = layer.num_heads, layer.qk_nope_head_dim, layer.v_head_dim
        tokens = latent.shape[0]
        keys, values = (
            layer.kv_b_proj(latent)[0]
            .view(tokens, heads, key_width + value_width)
            .split([key_width, value_width], dim=-1)
        )
        shared = key.reshape(tokens, 1, -1).expand(tokens, heads, layer.qk_rope_head_dim)
        keys = torch.cat((keys, shared), dim=-1)
        parts = (
            (query, key_width + layer.qk_rope_head_dim),
            (keys, key_width + layer.qk_rope_head_dim),
            (values, value_width),
        )
        return _causal_attention(*(_heads(tensor, sizes, heads, width) for tensor, width in parts))

    return forward


def _heads(tensor: torch.Tensor, sizes: Sequence[int], count: int, size: int) -> torch.Tensor:
    return tensor.reshape(*sizes, count, size).transpose(1, 2)


def _causal_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Causal attention of [prompts, heads, tokens, size]; [all tokens, heads x size]."""
    batch, heads, sequence, _ = query.shape
    is_grouped = heads != key.shape[1]
    attend = torch.nn.functional.scaled_dot_product_attention
    out = attend(query, key, value, is_causal=True, enable_gqa=is_grouped)
    return out.transpose(1, 2).reshape(batch * sequence, heads * value.shape[3])


def _experts(layer: Any) -> Forward:
    """Each token goes to its experts; their outputs are summed, and shared experts added."""
    first, second = layer.routed_experts.w13_weight, layer.routed_experts.w2_weight
    experts_per_token = layer.moe_config.experts_per_token

    def forward(hidden_states: torch.Tensor, router_logits: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        hidden, logits = hidden_states, router_logits
        if layer.gate is not None:
            logits, _ = layer.gate(hidden)
        rows = hidden.shape[0] * experts_per_token
        weights, numbers = (
            _like(hidden, hidden.shape[0], experts_per_token, dtype=dtype) for dtype in (torch.float32, torch.int32)
        )
        launch("topk_softmax_kernel", [logits], [weights, numbers])
        order = _like(hidden, rows, dtype=torch.int32)
        launch("moe_align_block_size_kernel", [numbers], [order])
        wide = _like(hidden, rows, first.shape[1])
        launch("fused_moe_kernel", [hidden, first, order], [wide], 2 * experts_per_token * first.shape[1])
        gated = _like(hidden, rows, second.shape[2])
        launch("act_and_mul_kernel", [wide], [gated])
        expert_outputs = _like(hidden, rows, second.shape[1])
        launch("fused_moe_kernel", [gated, second, weights, order], [expert_outputs], 2 * second.shape[1])
        out: torch.Tensor = _empty(hidden)
        launch("moe_sum_kernel", [expert_outputs], [out])
        shared = layer._shared_experts
        if shared is not None:
            shared_output: torch.Tensor = shared._layer(hidden)
            return out + shared_output
        return out

    return forward


def _like(tensor: torch.Tensor, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype or tensor.dtype, device="meta")


def _as_one_kernel(layer: Any) -> Forward:
    native, name = layer.forward_native, type(layer).__name__

    def forward(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes(), torch.device("meta"):
            like = native(*args, **kwargs)
        outputs = tree_map(_empty, like)
        reads = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        writes = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]
        launch(name, [*reads, *layer.parameters(recurse=False)], writes)
        return outputs

    return forward


def _empty(leaf: Any) -> Any:
    """A new tensor of the same shape, since ``leaf`` may come from outside the trace."""
    return torch.empty(leaf.shape, dtype=leaf.dtype, device="meta") if isinstance(leaf, torch.Tensor) else leaf
