"""Tensors on the GPU with random values of any type."""

from __future__ import annotations

from typing import Any

import torch

from presim.cost.profile.calls.call import Tensor


def random(*shape: int, dtype: str, **options: Any) -> torch.Tensor:
    """Normally distributed values; 8-bit types are cast from a wider type."""
    if dtype.startswith("float8"):
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16, **options).to(getattr(torch, dtype))
    return torch.randn(shape, device="cuda", dtype=getattr(torch, dtype), **options)


def tensor_for(tensor: Tensor) -> torch.Tensor:
    """A tensor as described; integers are below its bound, and half of booleans are true."""
    dtype: torch.dtype = getattr(torch, tensor.dtype)
    if dtype == torch.bool or not (dtype.is_floating_point or dtype.is_complex):
        return torch.randint(0, max(tensor.below, 1), tensor.shape, device="cuda", dtype=dtype)
    if tensor.values == "positive":
        return torch.rand(tensor.shape, device="cuda", dtype=dtype).add_(0.5)
    if tensor.values == "near one":
        return torch.rand(tensor.shape, device="cuda", dtype=dtype).mul_(0.02).add_(0.99)
    return random(*tensor.shape, dtype=tensor.dtype)
