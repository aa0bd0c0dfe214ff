"""Copies of bytes, on the GPU and to and from the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from presim.trace.signatures import Copy


def copy(signature: Copy) -> Callable[[], Any]:
    """Create a copy; host memory is pinned if the signature says so."""
    size = max(signature.bytes, 1)
    device = torch.empty(size, dtype=torch.int8, device="cuda")
    other = torch.empty(
        size,
        dtype=torch.int8,
        device="cuda" if signature.direction == "d2d" else "cpu",
        pin_memory=signature.pinned and signature.direction != "d2d",
    )
    to, source = (other, device) if signature.direction == "d2h" else (device, other)
    return lambda: to.copy_(source, non_blocking=True)
