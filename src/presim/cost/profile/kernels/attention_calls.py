"""PyTorch's fused attention with the signature's backend."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from presim.cost.profile.kernels.tensors import random
from presim.trace.signatures import Attention

_BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
_DROPPED = 1 / 8  # share of weights dropped; the time does not depend on it, and cuDNN takes sixteenths


def backend(signature: Attention) -> AbstractContextManager[None]:
    """Allow only the signature's backend; PyTorch raises if it cannot be used."""
    context: AbstractContextManager[None] = sdpa_kernel([_BACKENDS[signature.backend]])
    return context


def attention(signature: Attention) -> Callable[[], Any]:
    """A forward pass, or the backward pass of one run before, with heads interleaved as projections produce them.

    Flash attention's backward copies tensors in other layouts. Its time includes what it launches before and after its
    main kernel (row sums, gradients in float32, shared key heads).
    """
    backward = signature.direction == "backward"
    sizes = (
        (signature.q_len, signature.heads, signature.head_dim),
        (signature.kv_len, signature.kv_heads, signature.head_dim),
        (signature.kv_len, signature.kv_heads, signature.v_head_dim),
    )
    query, key, value = (
        random(signature.batch, *size, dtype=signature.dtype).transpose(1, 2).requires_grad_(backward) for size in sizes
    )
    dropout = _DROPPED if signature.dropout else 0.0
    shared = signature.heads != signature.kv_heads

    def forward() -> torch.Tensor:
        return scaled_dot_product_attention(
            query, key, value, dropout_p=dropout, is_causal=signature.causal, enable_gqa=shared
        )

    if not backward:
        return forward
    result = forward()
    gradient = torch.randn_like(result)
    return lambda: torch.autograd.grad(result, (query, key, value), gradient, retain_graph=True)
