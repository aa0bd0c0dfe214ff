"""A convolution, or one of its two gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from presim.cost.profile.kernels.tensors import random
from presim.trace.signatures import Convolution


def convolution(signature: Convolution) -> Callable[[], Any]:
    """Create a convolution in the signature's memory format; padding follows from the sizes."""
    spatial = len(signature.input_size)
    order = (torch.channels_last, torch.channels_last_3d)[spatial - 2] if spatial > 1 else torch.contiguous_format
    order = order if signature.layout == "nhwc" else torch.contiguous_format
    shape = (signature.batch, signature.in_channels, *signature.input_size)
    filters = (signature.out_channels, signature.in_channels // signature.groups, *signature.filter_size)
    image = random(*shape, dtype=signature.dtype).to(memory_format=order)
    weight = random(*filters, dtype=signature.dtype).to(memory_format=order)
    gradient = random(
        signature.batch, signature.out_channels, *signature.output_size, dtype=signature.dtype
    ).to(memory_format=order)  # fmt: skip
    padding = [
        max(0, ((out - 1) * step + wide * (size - 1) + 1 - inside + 1) // 2)
        for inside, size, out, step, wide in zip(
            signature.input_size, signature.filter_size, signature.output_size, signature.stride, signature.dilation
        )
    ]
    settings = (list(signature.stride), padding, list(signature.dilation), False, [0] * spatial, signature.groups)
    if signature.direction == "forward":
        return lambda: torch.ops.aten.convolution(image, weight, None, *settings)
    output_mask = [signature.direction == "backward_data", signature.direction == "backward_weight", False]
    return lambda: torch.ops.aten.convolution_backward(gradient, image, weight, None, *settings, output_mask)
