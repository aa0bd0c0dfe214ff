"""Mamba 2's layers as mamba-ssm 2.3 and causal-conv1d compute them, kernel by kernel.

x is [batch, sequence, heads, head size], B and C [batch, sequence, groups, state size], dt [batch, sequence, heads].
What a kernel holds for each chunk (states, products of C and B) is counted by token: a last chunk that is not full is
counted by its tokens. Backward kernels that split heads over programs where chunks are few are counted without that.
"""

from __future__ import annotations

from typing import Any

import torch

from presim.composition.graph.libraries.library_kernels import launch

_FP32 = torch.float32


def causal_conv1d_fn(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *args: Any, **ignored: Any
) -> torch.Tensor:
    """A depthwise causal convolution with its activation; x is [batch, channels, sequence]."""
    return _Convolution.apply(x, weight, bias)  # type: ignore[no-any-return]


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        context.save_for_backward(x, weight, bias)
        return _convolved(x, weight, bias)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        x, weight, bias = context.saved_tensors
        return _convolved_backward(x, weight, bias, gradients[0])


def _convolved(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    out = torch.empty_like(x)
    launch("causal_conv1d_fwd_kernel", [x, weight, bias], [out])
    return out


def _convolved_backward(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, gradient: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    d_x, d_weight = torch.empty_like(x), torch.zeros_like(weight, dtype=_FP32)
    d_bias = None if bias is None else torch.zeros_like(bias, dtype=_FP32)
    writes = [d_x, d_weight] if d_bias is None else [d_x, d_weight, d_bias]
    launch("causal_conv1d_bwd_kernel", [x, gradient, weight, bias], writes)
    return d_x, d_weight.to(weight.dtype), None if d_bias is None or bias is None else d_bias.to(bias.dtype)


def mamba_chunk_scan_combined(
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    chunk_size: int,
    D: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    **ignored: Any,
) -> torch.Tensor:
    """The outputs of the scan, shaped as x."""
    return _Scan.apply(x, dt, A, B, C, D, dt_bias, chunk_size)  # type: ignore[no-any-return]


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, *inputs: Any) -> torch.Tensor:
        x, dt, A, B, C, D, dt_bias, context.chunk = inputs
        context.save_for_backward(x, dt, A, B, C, D, dt_bias)
        return _scanned(x, dt, A, B, C, D, dt_bias, context.chunk)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        x, dt, A, B, C, D, dt_bias = context.saved_tensors
        return (*_scanned_backward(x, dt, A, B, C, D, dt_bias, context.chunk, gradients[0]), None)


def mamba_split_conv1d_scan_combined(
    zxbcdt: torch.Tensor,
    conv1d_weight: torch.Tensor,
    conv1d_bias: torch.Tensor | None,
    dt_bias: torch.Tensor,
    A: torch.Tensor,
    D: torch.Tensor,
    chunk_size: int,
    rmsnorm_weight: torch.Tensor | None = None,
    outproj_weight: torch.Tensor | None = None,
    outproj_bias: torch.Tensor | None = None,
    ngroups: int = 1,
    headdim: int | None = None,
    **ignored: Any,
) -> torch.Tensor:
    """Convolution, scan, gated norm and output projection, of which the backward pass runs the convolution again."""
    sizes = ngroups, chunk_size
    tensors = (zxbcdt, conv1d_weight, conv1d_bias, dt_bias, A, D, rmsnorm_weight)
    out = _SplitScan.apply(*tensors, sizes)
    return out if outproj_weight is None else torch.nn.functional.linear(out, outproj_weight, outproj_bias)


class _SplitScan(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any,
        zxbcdt: torch.Tensor,
        conv_weight: torch.Tensor,
        conv_bias: torch.Tensor | None,
        dt_bias: torch.Tensor,
        A: torch.Tensor,
        D: torch.Tensor,
        norm_weight: torch.Tensor | None,
        sizes: tuple[int, int],
    ) -> torch.Tensor:
        z, x_b_c, dt = _split(zxbcdt, conv_weight, A)
        x, B, C = _parts(_convolved(x_b_c, conv_weight, conv_bias), z, A, sizes[0])
        scanned = _scanned(x, dt, A, B, C, D, dt_bias, sizes[1])
        out, scale = torch.empty_like(scanned), zxbcdt.new_empty(zxbcdt.shape[:2], dtype=_FP32)
        launch("_layer_norm_fwd_1pass_kernel", [scanned, z, norm_weight], [out, scale])
        context.sizes = sizes
        context.save_for_backward(zxbcdt, conv_weight, conv_bias, dt_bias, A, D, norm_weight, scanned, scale)
        return out.flatten(2)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        zxbcdt, conv_weight, conv_bias, dt_bias, A, D, norm_weight, scanned, scale = context.saved_tensors
        groups, chunk = context.sizes
        z, x_b_c, dt = _split(zxbcdt, conv_weight, A)
        x, B, C = _parts(_convolved(x_b_c, conv_weight, conv_bias), z, A, groups)
        d_all = torch.empty_like(zxbcdt)
        d_z, d_x_b_c, d_dt = _split(d_all, conv_weight, A)
        d_scanned = torch.empty_like(scanned)
        writes = [d_scanned, d_z]
        if norm_weight is not None:
            writes.append(torch.zeros_like(norm_weight, dtype=_FP32))
        launch("_layer_norm_bwd_kernel", [scanned, z, gradients[0], scale, norm_weight], writes)
        d_norm = writes[2].to(norm_weight.dtype) if norm_weight is not None else None
        scan_gradients = _scanned_backward(x, dt, A, B, C, D, dt_bias, chunk, d_scanned, d_dt)
        d_x, _, d_A, d_B, d_C, d_D, d_bias = scan_gradients
        d_conv = torch.empty_like(x_b_c)  # the scan's kernels write into its parts
        del d_x, d_B, d_C
        writes = [d_x_b_c, torch.zeros_like(conv_weight, dtype=_FP32)]
        launch("causal_conv1d_bwd_kernel", [x_b_c, d_conv, conv_weight, conv_bias], writes)
        d_conv_bias = None if conv_bias is None else torch.zeros_like(conv_bias)
        return d_all, writes[1].to(conv_weight.dtype), d_conv_bias, d_bias, d_A, d_D, d_norm, None


def _split(zxbcdt: torch.Tensor, conv_weight: torch.Tensor, A: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Views of the gate, of what is convolved, and of dt."""
    convolved, heads = conv_weight.shape[0], A.shape[0]
    return tuple(zxbcdt.split([zxbcdt.shape[2] - convolved - heads, convolved, heads], dim=2))


def _parts(x_b_c: torch.Tensor, z: torch.Tensor, A: torch.Tensor, groups: int) -> tuple[torch.Tensor, ...]:
    """Views of x, B and C."""
    inner = z.shape[2]
    state = (x_b_c.shape[2] - inner) // 2
    x, B, C = x_b_c.split([inner, state, state], dim=2)
    return x.unflatten(2, (A.shape[0], -1)), B.unflatten(2, (groups, -1)), C.unflatten(2, (groups, -1))


def _by_token(like: torch.Tensor, size: int, chunk: int, dtype: torch.dtype) -> torch.Tensor:
    """Memory for ``size`` numbers of each chunk."""
    return like.new_empty(*like.shape[:2], -(-size // chunk), dtype=dtype)


def _scanned(
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    D: torch.Tensor | None,
    dt_bias: torch.Tensor | None,
    chunk: int,
) -> torch.Tensor:
    decay, step = _cumulated(dt, A, dt_bias)
    states = _chunk_states(x, B, step, decay, chunk)
    passed = _passed(states, x.dtype)
    products = _products(B, C, chunk)
    out = x.new_empty(x.shape)
    flops = 2 * B.shape[3] + chunk
    launch("_chunk_scan_fwd_kernel", [x, products, step, decay, C, passed, D], [out], flops)
    return out


def _cumulated(dt: torch.Tensor, A: torch.Tensor, dt_bias: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    decay, step = dt.new_empty(dt.shape, dtype=_FP32), dt.new_empty(dt.shape, dtype=_FP32)
    launch("_chunk_cumsum_fwd_kernel", [dt, A, dt_bias], [decay, step])
    return decay, step


def _chunk_states(
    x: torch.Tensor, B: torch.Tensor, step: torch.Tensor, decay: torch.Tensor, chunk: int
) -> torch.Tensor:
    states = _by_token(x, x.shape[2] * x.shape[3] * B.shape[3], chunk, _FP32)
    launch("_chunk_state_fwd_kernel", [x, B, step, decay], [states], 2 * B.shape[3])
    return states


def _passed(states: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    passed = states.new_empty(states.shape, dtype=dtype)
    launch("_state_passing_fwd_kernel", [states], [passed])
    return passed


def _products(B: torch.Tensor, C: torch.Tensor, chunk: int) -> torch.Tensor:
    products = B.new_empty(*B.shape[:3], chunk, dtype=_FP32)
    launch("_bmm_chunk_fwd_kernel", [C, B], [products], 2 * chunk)
    return products


def _scanned_backward(
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    D: torch.Tensor | None,
    dt_bias: torch.Tensor | None,
    chunk: int,
    gradient: torch.Tensor,
    d_dt: torch.Tensor | None = None,
) -> tuple[torch.Tensor | None, ...]:
    """Gradients of x, dt, A, B, C, D and dt_bias."""
    state, n = x.dtype, B.shape[3]
    decay, step = _cumulated(dt, A, dt_bias)
    products = _products(B, C, chunk)
    passed = _passed(_chunk_states(x, B, step, decay, chunk), _FP32)
    d_states = torch.empty_like(passed)
    launch("_chunk_scan_bwd_dstates_kernel", [gradient, C, decay], [d_states], 2 * n)
    d_passed = torch.empty_like(passed)
    launch("_state_passing_bwd_kernel", [d_states, passed], [d_passed])
    d_x, d_step = x.new_empty(x.shape), torch.zeros_like(step)
    reads = [x, products, gradient, step, decay, B, d_passed, D]
    launch("_chunk_scan_chunk_state_bwd_dx_kernel", reads, [d_x, d_step], 2 * n + chunk)
    d_B, d_C, parts = B.new_empty(B.shape, dtype=_FP32), C.new_empty(C.shape, dtype=_FP32), torch.zeros_like(decay)
    launch("_chunk_state_bwd_db_kernel", [x, d_passed, step, decay], [d_B, parts], 2 * n)
    launch("_chunk_scan_bwd_dc_kernel", [gradient, passed, decay], [d_C, torch.zeros_like(decay)], 2 * n)
    d_products = torch.empty_like(products)
    launch("_chunk_scan_bwd_dcb_kernel", [x, gradient, step, decay], [d_products], chunk)
    d_B_out, d_C_out = B.new_empty(B.shape, dtype=state), C.new_empty(C.shape, dtype=state)
    launch("_bmm_chunk_bwd_kernel", [C, d_products, d_B], [d_B_out], 2 * chunk)
    launch("_bmm_chunk_bwd_kernel", [B, d_products, d_C], [d_C_out], 2 * chunk)
    d_decay = parts.flip(1).cumsum(1).flip(1)
    stable = torch.empty_like(decay)
    launch("_chunk_scan_bwd_ddAcs_stable_kernel", [x, gradient, step, decay, products], [stable], chunk)
    d_decay += stable
    d_A = torch.zeros_like(A)
    d_bias = None if dt_bias is None else torch.zeros_like(dt_bias)
    d_dt = dt.new_empty(dt.shape) if d_dt is None else d_dt
    launch("_chunk_cumsum_bwd_kernel", [d_decay, d_step, dt, A], [d_dt, d_A] + ([] if d_bias is None else [d_bias]))
    d_D = None if D is None else torch.zeros_like(D)
    return d_x, d_dt, d_A, d_B_out, d_C_out, d_D, d_bias
