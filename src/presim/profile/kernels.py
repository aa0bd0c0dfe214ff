"""From a signature to a call of PyTorch that does just this work, on random numbers: zeros would draw less power."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from presim.profile.operands import CAST, OPERATORS, cast_source
from presim.trace.signatures import (
    Attention,
    Convolution,
    Copy,
    Elementwise,
    Gemm,
    Normalization,
    Signature,
    Softmax,
)

Run: TypeAlias = Callable[[], Any]
_BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
_ROWS_OF = 4096  # elements of a row where a signature does not say


@contextlib.contextmanager
def prepared(signature: Signature) -> Iterator[Run]:
    """A call that does the work once; what it needs is there as long as the block lasts.

    Raises:
        NotImplementedError: there is no way to set up this signature; `plan.obstacle` says so beforehand.
    """
    if isinstance(signature, Attention):
        with sdpa_kernel([_BACKENDS[signature.backend]]):
            yield _attention(signature)
        return
    with _precision(signature):
        yield _make(signature)


def _make(signature: Signature) -> Run:
    if isinstance(signature, Gemm):
        return _product(signature)
    if isinstance(signature, Elementwise):
        return _elementwise(signature)
    if isinstance(signature, Convolution):
        return _convolution(signature)
    if isinstance(signature, Copy):
        return _copy(signature)
    if isinstance(signature, (Normalization, Softmax)):
        return _rows(signature)
    raise NotImplementedError(f"no way to set up {type(signature).__name__}")


@contextlib.contextmanager
def _precision(signature: Signature) -> Iterator[None]:
    """TF32 where the signature says so, whatever the default is."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    tf32 = getattr(signature, "compute", "") == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def _random(*shape: int, dtype: str, **more: Any) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=getattr(torch, dtype), **more)


def _product(signature: Gemm) -> Run:
    m, n, k, batch = signature.m, signature.n, signature.k, signature.batch
    left = _operand(batch, m, k, signature.dtype, signature.layout[0] == "T")
    right = _operand(batch, k, n, signature.dtype, signature.layout[-1] == "T")
    if batch == 1:
        left, right = left[0], right[0]
    if signature.accumulate:
        total = _random(*left.shape[:-1], n, dtype=signature.dtype)
        add = torch.addmm if batch == 1 else torch.baddbmm
        return lambda: add(total, left, right, out=total)
    if signature.epilogue == "bias" and batch == 1:
        bias = _random(n, dtype=signature.dtype)
        return lambda: torch.addmm(bias, left, right)
    out = torch.empty(*left.shape[:-1], n, device="cuda", dtype=left.dtype)
    return lambda: torch.matmul(left, right, out=out)


def _operand(batch: int, rows: int, columns: int, dtype: str, transposed: bool) -> torch.Tensor:
    if transposed:
        return _random(batch, columns, rows, dtype=dtype).transpose(1, 2)
    return _random(batch, rows, columns, dtype=dtype)


def _attention(signature: Attention) -> Run:
    backward = signature.direction == "backward"
    sizes = (
        (signature.heads, signature.q_len, signature.head_dim),
        (signature.kv_heads, signature.kv_len, signature.head_dim),
        (signature.kv_heads, signature.kv_len, signature.v_head_dim),
    )
    query, key, value = (
        _random(signature.batch, *size, dtype=signature.dtype, requires_grad=backward) for size in sizes
    )
    shared = signature.heads != signature.kv_heads

    def forward() -> torch.Tensor:
        return scaled_dot_product_attention(query, key, value, is_causal=signature.causal, enable_gqa=shared)

    if not backward:
        return forward
    result = forward()
    gradient = torch.randn_like(result)
    return lambda: torch.autograd.grad(result, (query, key, value), gradient, retain_graph=True)


def _elementwise(signature: Elementwise) -> Run:
    name = signature.operator.removeprefix("aten::")
    if signature.operator == CAST:
        source = _random(signature.elements, dtype=cast_source(signature))
        target = torch.empty_like(source, dtype=getattr(torch, signature.dtype))
        return lambda: target.copy_(source)
    operands = OPERATORS[signature.operator]
    tensors = [_random(signature.elements, dtype=signature.dtype) for _ in range(max(operands, 1))]
    if operands == 0:
        return lambda: tensors[0].fill_(1.0)
    if name.endswith("_"):
        return lambda: getattr(tensors[0], name)(*tensors[1:])
    call: Callable[..., Any] = getattr(torch.ops.aten, name)
    return lambda: call(*tensors)


def _rows(signature: Normalization | Softmax) -> Run:
    width = signature.row or min(_ROWS_OF, max(signature.elements, 1))
    rows = _random(max(signature.elements // width, 1), width, dtype=signature.dtype)
    name = signature.operator.removeprefix("aten::")
    if name.endswith("_backward_data"):
        result = torch.log_softmax(rows, -1) if "log" in name else torch.softmax(rows, -1)
        return lambda: getattr(torch.ops.aten, name)(rows, result, -1, rows.dtype)
    if isinstance(signature, Softmax):
        return lambda: getattr(torch.ops.aten, name or "_softmax")(rows, -1, False)
    weights = [_random(width, dtype=signature.dtype) for _ in range(2)] if name else [None, None]
    return lambda: torch.ops.aten.native_layer_norm(rows, (width,), *weights, 1e-5)


def _convolution(signature: Convolution) -> Run:
    spatial = len(signature.input_size)
    order = (torch.channels_last, torch.channels_last_3d)[spatial - 2] if spatial > 1 else torch.contiguous_format
    order = order if signature.layout == "nhwc" else torch.contiguous_format
    shape = (signature.batch, signature.in_channels, *signature.input_size)
    filters = (signature.out_channels, signature.in_channels // signature.groups, *signature.filter_size)
    image = _random(*shape, dtype=signature.dtype).to(memory_format=order)
    weight = _random(*filters, dtype=signature.dtype).to(memory_format=order)
    gradient = _random(
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
    wanted = [signature.direction == "backward_data", signature.direction == "backward_weight", False]
    return lambda: torch.ops.aten.convolution_backward(gradient, image, weight, None, *settings, wanted)


def _copy(signature: Copy) -> Run:
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
