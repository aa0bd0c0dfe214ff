"""PyTorch's fused attention by the backend that a signature names."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from presim.profile.kernels.tensors import random
from presim.trace.signatures import Attention

_BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
_DROPPED = 1 / 8  # of the weights, with dropout; its time does not hang on how many, and cuDNN takes sixteenths


def backend(signature: Attention) -> AbstractContextManager[None]:
    """Only the one that is asked for, or PyTorch says why not."""
    chosen: AbstractContextManager[None] = sdpa_kernel([_BACKENDS[signature.backend]])
    return chosen


def attention(signature: Attention) -> Callable[[], Any]:
    """Forward, or backward of a forward that was run before, on heads beside each other, as products leave them.

    Flash attention's backward copies what lies otherwise. What it launches before and after its main kernel (sums of
    rows, gradients in float32, heads that share keys) is in its time, too.
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
