"""Operators that PyTorch chooses by device, resolved on the meta device as on a CUDA device."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from presim.composition.graph import fused_functions


class AsOnDevice(TorchFunctionMode):
    """Resolves device-dependent calls as on a CUDA device."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """See `torch.overrides`."""
        kwargs = kwargs or {}
        if function is torch.nn.functional.scaled_dot_product_attention:
            return _attention(*args, **kwargs)
        if function is torch.nn.functional.dropout:
            return _dropout(*args, **kwargs)
        if function is torch.nn.functional.rms_norm:
            return fused_functions.rms_norm(*args, **kwargs)
        return function(*args, **kwargs)


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Attention as one operator with its own backward, independent of the GPU's backend."""
    if attn_mask is not None:
        shape = (*query.shape[:-1], key.shape[-2])
        if attn_mask.dtype == torch.bool:
            attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(attn_mask.logical_not(), -1e9)
        attn_mask = attn_mask.expand(shape)
        if attn_mask.requires_grad:  # only the memory-efficient kernels have its gradient
            efficient = torch.ops.aten._scaled_dot_product_efficient_attention
            return efficient(query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale)[0]  # type: ignore[no-any-return]
    call = torch.ops.aten._scaled_dot_product_cudnn_attention
    result: torch.Tensor = call(query, key, value, attn_mask, True, dropout_p, is_causal, False, scale=scale)[0]
    return result


def _dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    if not training or p == 0:
        return input
    result: torch.Tensor = torch.ops.aten.native_dropout(input, p, True)[0]
    return result
