"""Mamba 1's layers as mamba-ssm 2.3 computes them, kernel by kernel.

u, delta and z are [batch, channels, sequence], A [channels, states], B and C [batch, groups, states, sequence]. The
scan's CUDA kernel takes an exponential for each channel, state and token.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import linear

from presim.composition.graph.libraries.library_kernels import launch
from presim.composition.graph.libraries.mamba import causal_conv1d_fn

_CHUNK = 2048  # tokens between two states that the forward kernel keeps


def selective_scan_fn(
    u: torch.Tensor,
    delta: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    D: torch.Tensor | None = None,
    z: torch.Tensor | None = None,
    delta_bias: torch.Tensor | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
    **ignored: Any,
) -> Any:
    """The outputs, shaped as ``u``; with ``return_last_state`` the final states [batch, channels, states] too."""
    out = _SelectiveScan.apply(u, delta, A, B, C, D, z, delta_bias)
    return (out, u.new_empty(*u.shape[:2], A.shape[1], dtype=torch.float32)) if return_last_state else out


class _SelectiveScan(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, *inputs: Any) -> torch.Tensor:
        u, delta, A, B, C, D, z, bias = inputs
        out: torch.Tensor = torch.empty_like(u)
        states = u.new_empty(u.shape[0], -(-u.shape[1] * 2 * A.shape[1] // _CHUNK), u.shape[2], dtype=torch.float32)
        writes = [out, states] if z is None else [out, states, torch.empty_like(u)]
        launch("selective_scan_fwd_kernel", [u, delta, A, B, C, D, z, bias], writes, exponentials=A.shape[1])
        context.save_for_backward(*inputs, states, out if z is not None else None)
        return writes[-1] if z is not None else out

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        *inputs, states, out = context.saved_tensors
        input_gradients = [None if tensor is None else torch.empty_like(tensor) for tensor in inputs]
        reads = [*inputs, states, out, gradients[0]]
        writes = [tensor for tensor in input_gradients if tensor is not None]
        launch("selective_scan_bwd_kernel", reads, writes, exponentials=2 * inputs[2].shape[1])
        return tuple(input_gradients)


def mamba_inner_fn(
    xz: torch.Tensor,
    conv1d_weight: torch.Tensor,
    conv1d_bias: torch.Tensor | None,
    x_proj_weight: torch.Tensor,
    delta_proj_weight: torch.Tensor,
    out_proj_weight: torch.Tensor,
    out_proj_bias: torch.Tensor | None,
    A: torch.Tensor,
    B: torch.Tensor | None = None,
    C: torch.Tensor | None = None,
    D: torch.Tensor | None = None,
    delta_bias: torch.Tensor | None = None,
    **ignored: Any,
) -> torch.Tensor:
    """Everything between a layer's two projections, and the second; xz is [batch, 2 * channels, sequence].

    The library computes the convolution and delta again in the backward pass instead of keeping them; here they are
    kept, which needs more memory and less time.
    """
    x, z = xz.chunk(2, dim=1)
    x = causal_conv1d_fn(x, conv1d_weight.squeeze(1), conv1d_bias)
    rank, states = delta_proj_weight.shape[1], A.shape[1]
    projected = linear(x.transpose(1, 2), x_proj_weight)
    time, own_b, own_c = projected.split([rank, states, states], dim=2)
    delta = linear(time, delta_proj_weight).transpose(1, 2)
    B = own_b.transpose(1, 2).unsqueeze(1).contiguous() if B is None else B
    C = own_c.transpose(1, 2).unsqueeze(1).contiguous() if C is None else C
    out = selective_scan_fn(x, delta, A, B, C, D, z, delta_bias)
    return linear(out.transpose(1, 2), out_proj_weight, out_proj_bias)
