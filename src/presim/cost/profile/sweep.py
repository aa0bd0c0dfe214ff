"""The standard sweep: the work of training transformers, on a grid with factors of two to four."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from presim.capture.reading.pointwise_kernels import casts_elements
from presim.trace.dtypes import dtype_bytes
from presim.trace.signatures import (
    Attention,
    Convolution,
    Copy,
    Elementwise,
    Gemm,
    GroupedGemm,
    Index,
    Normalization,
    Optimizer,
    Random,
    Reduction,
    Signature,
    Softmax,
)

_SIDES = (1024, 2048, 4096, 8192, 14336)
# The last two with a scalar.
_ONE_OPERAND = (
    "gelu",
    "silu",
    "clamp_min",
    "neg",
    "exp",
    "tanh",
    "sigmoid",
    "mul",
    "pow",
)
_TWO_OPERANDS = ("add", "mul", "sub", "div", "add_", "mul_")
_POWERS = range(12, 30, 2)  # exponents of two, in elements
_CASTS = (
    ("float32", "bfloat16"), ("bfloat16", "float32"), ("bfloat16", "float8_e4m3fn"), ("float32", "float8_e4m3fn"),
)  # fmt: skip
_CONVOLUTION_TYPES = (
    ("bfloat16", "float32", "nhwc"),
    ("bfloat16", "float32", "nchw"),
    ("float32", "tf32", "nchw"),
)
_STAGES = ((64, 56), (128, 28), (256, 14), (512, 7), (320, 64), (640, 32), (1280, 16))  # channels, side
_DEPTHWISE_STAGES = ((96, 56), (352, 28), (768, 14), (1408, 7))
_FP8 = (("float8_e4m3fn", ""), ("float8_e5m2", "float8_e4m3fn"))


def standard_sweep() -> Iterator[Signature]:
    """Every kind of work that needs only one GPU."""
    yield from _products()
    yield from _attention()
    yield from _convolutions()
    yield from _elementwise()
    yield from _rows()
    yield from _reductions()
    yield from _optimizers()
    yield from _indexing()
    for direction, power in itertools.product(("d2d", "h2d", "d2h"), range(12, 32, 2)):
        yield Copy(direction, 1 << power, pinned=direction in ("h2d", "d2h"))  # type: ignore[arg-type]


def _products() -> Iterator[Signature]:
    layouts = (("NT", False), ("NN", False), ("TN", False))
    for (layout, accumulate), rows, n, k in itertools.product(layouts, (512, 2048, 8192, 16384), _SIDES, _SIDES):
        yield Gemm(rows, n, k, 1, "bfloat16", layout=layout, accumulate=accumulate)
    for (a_dtype, b_dtype), rows, n, k in itertools.product(_FP8, (2048, 8192, 16384), _SIDES[1:], _SIDES[1:]):
        for scaling, sums in (("", "precise"), ("outer", "")):
            yield Gemm(rows, n, k, 1, a_dtype, "float32", "bfloat16", b_dtype, "NT", scaling=scaling, sums=sums)
    for groups, rows, (n, k) in itertools.product((8, 64), (4096, 16384, 65536), ((2048, 2048), (4096, 2048))):
        yield GroupedGemm(groups, rows, n, k, "bfloat16")


def _attention() -> Iterator[Signature]:
    for direction, backend, dim, length in itertools.product(
        ("forward", "backward"), ("flash", "cudnn"), (64, 128), (512, 1024, 2048, 4096, 8192, 16384)
    ):
        for heads, kv_heads in ((16, 16), (32, 8)):
            batch = max(1, 8192 // length)
            yield Attention(direction, batch, heads, kv_heads, length, length, dim, dim, True, "bfloat16", backend)  # type: ignore[arg-type]


def _convolutions() -> Iterator[Signature]:
    """Image classifiers' and diffusers' stages, depthwise filters, sound and volumes; each with its two gradients."""
    for (dtype, compute, layout), (channels, side) in itertools.product(_CONVOLUTION_TYPES, _STAGES):
        for batch, (width, stride, expansion) in itertools.product((8, 64), ((1, 1, 4), (3, 1, 1), (3, 2, 2))):
            yield from _convolution(
                batch, channels, expansion * channels, side, width, stride, 2, 1, dtype, compute, layout
            )
    for dtype, (channels, side), width in itertools.product(("bfloat16", "float32"), _DEPTHWISE_STAGES, (3, 7)):
        yield from _convolution(64, channels, channels, side, width, 1, 2, channels, dtype, "float32", "nchw")
    for channels, length in ((512, 16000), (512, 2000), (80, 3000), (768, 3000)):
        yield from _convolution(8, channels, 768, length, 3, 2, 1, 1, "bfloat16", "float32", "nchw")
    for channels, side in ((32, 96), (64, 48), (128, 24), (256, 12)):
        for dtype in ("float16", "float32"):
            yield from _convolution(2, channels, channels, side, 3, 1, 3, 1, dtype, "float32", "nchw")


def _convolution(
    batch: int, inputs: int, outputs: int, side: int, width: int, stride: int, spatial: int, groups: int, dtype: str,
    compute: str, layout: str,
) -> Iterator[Signature]:  # fmt: skip
    """A convolution of ``spatial`` dimensions and its two gradients, padded to keep the size at a stride of one."""
    for direction in ("forward", "backward_data", "backward_weight"):
        sizes = ((side,) * spatial, (width,) * spatial, (-(-side // stride),) * spatial, (stride,) * spatial)
        yield Convolution(direction, batch, inputs, outputs, *sizes, (1,) * spatial, groups, dtype, compute, layout)


def _elementwise() -> Iterator[Signature]:
    for dtype, power in itertools.product(("bfloat16", "float32"), _POWERS):
        size = dtype_bytes(dtype) << power
        for operands, names in ((1, _ONE_OPERAND), (2, _TWO_OPERANDS)):
            for name in names:
                yield Elementwise(operands * size, size, 1 << power, dtype, operator=f"aten::{name}")
        yield Random(size, size + (1 << power), 1 << power, dtype, operator="aten::native_dropout")
    for (source, target), power in itertools.product(_CASTS, _POWERS):
        sizes = dtype_bytes(source) << power, dtype_bytes(target) << power
        operands = 2 if casts_elements({source}, {target}) else 0
        yield Elementwise(*sizes, 1 << power, target, operator="aten::copy_", cast_operands=operands)


def _rows() -> Iterator[Signature]:
    for dtype, row, power in itertools.product(("bfloat16", "float32"), (1024, 4096, 16384), range(20, 30, 2)):
        size, weight, rows = dtype_bytes(dtype) << power, row * dtype_bytes(dtype), (1 << power) // row
        for name, weights, statistics in (
            ("native_layer_norm", 2 * weight, 8 * rows),
            ("_fused_rms_norm", weight, 4 * rows),
        ):
            forward_bytes = (size + weights, size + statistics)
            backward_bytes = (2 * size + weights + statistics, size + weights)
            yield Normalization(*forward_bytes, 1 << power, dtype, operator=f"aten::{name}", row=row)
            yield Normalization(*backward_bytes, 1 << power, dtype, operator=f"aten::{name}_backward", row=row)
    for rows, row in itertools.product((1024, 4096, 16384), (32000, 128256)):
        size = 4 * rows * row
        yield Softmax(size, size, rows * row, "float32", operator="aten::_log_softmax", row=row)
        yield Softmax(2 * size, size, rows * row, "float32", operator="aten::_log_softmax_backward_data", row=row)


def _reductions() -> Iterator[Signature]:
    """Full reductions, and reductions along a dimension of 4,096, such as bias gradients or row means."""
    for name, dtype, power in itertools.product(("sum", "mean", "amax"), ("bfloat16", "float32"), range(16, 30, 2)):
        for results in (1, 1 << power - 12):
            size = dtype_bytes(dtype)
            yield Reduction(size << power, results * size, 1 << power, dtype, operator=f"aten::{name}")


def _optimizers() -> Iterator[Signature]:
    """Launches of one chunk to more than two thousand, the maximum per launch."""
    for dtype, tensors, power in itertools.product(("bfloat16", "float32"), (4, 32), range(20, 28)):
        size = dtype_bytes(dtype) << power
        steps = 4 * tensors
        yield Optimizer(4 * size + steps, 3 * size + steps, 1 << power, dtype, tensors, "aten::_fused_adamw_")
        for name, operands in (("mul_", 1), ("sqrt", 1), ("lerp_", 2), ("addcmul_", 3), ("addcdiv_", 3)):
            yield Optimizer(operands * size, size, 1 << power, dtype, tensors, f"aten::_foreach_{name}")


def _indexing() -> Iterator[Signature]:
    """Rows of an embedding table, and rows of tokens routed to experts."""
    for width, count in itertools.product((1024, 4096), (2048, 8192, 32768)):
        row_bytes, index_bytes = 2 * width * count, 8 * count
        for name, rows in (("gather", 128256), ("index", count)):
            elements = width * rows
            yield Index(row_bytes + index_bytes, row_bytes, elements, "bfloat16", operator=f"aten::{name}")
