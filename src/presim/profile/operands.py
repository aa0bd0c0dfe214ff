"""Memory-bound work that can be set up from its signature: its bytes are those of its operator's plain operands.

Plain: contiguous, of one size and type, nothing expanded. Bytes that say otherwise belong to another call.
"""

from __future__ import annotations

from presim.trace.dtypes import dtype_bytes
from presim.trace.signatures import Elementwise, Normalization, Softmax

FLOATS = ("bfloat16", "float16", "float32")
OPERATORS = {  # elementwise operators: number of operands
    "aten::add": 2, "aten::mul": 2, "aten::sub": 2, "aten::div": 2, "aten::gelu": 1, "aten::silu": 1, "aten::relu": 1,
    "aten::neg": 1, "aten::exp": 1, "aten::tanh": 1, "aten::sigmoid": 1, "aten::add_": 2, "aten::mul_": 2,
    "aten::sqrt": 1, "aten::rsqrt": 1, "aten::abs": 1, "aten::reciprocal": 1, "aten::cos": 1, "aten::sin": 1,
    "aten::gelu_backward": 2, "aten::silu_backward": 2, "aten::tanh_backward": 2, "aten::sigmoid_backward": 2,
    "aten::fill_": 0,
}  # fmt: skip
CAST = "aten::copy_"
LAYER_NORM = "aten::native_layer_norm"
SOFTMAX = {  # operator: operands
    "aten::_softmax": 1, "aten::_log_softmax": 1,
    "aten::_softmax_backward_data": 2, "aten::_log_softmax_backward_data": 2,
}  # fmt: skip
_STATISTICS = 2 * 4  # bytes a row: mean and reciprocal deviation, in float32


def plain_elementwise(signature: Elementwise) -> bool:
    """Whether it has as many operands of one type and size as its operator takes, or is a cast."""
    size = signature.elements * dtype_bytes(signature.dtype)
    if signature.dtype not in FLOATS or size < 1 or signature.bytes_written != size:
        return False
    if signature.operator == CAST:
        return cast_source(signature) != ""
    operands = OPERATORS.get(signature.operator)
    return operands is not None and signature.bytes_read == operands * size


def cast_source(signature: Elementwise) -> str:
    """The type that a cast reads; empty where it is none: copies within a type are strided, or no kernel at all."""
    for source in ("float32", "bfloat16"):
        if signature.bytes_read == signature.elements * dtype_bytes(source) != signature.bytes_written:
            return source
    return ""


def plain_rows(signature: Normalization | Softmax) -> bool:
    """Whether a norm or a softmax takes whole rows of one tensor, with a weight and a bias for a norm."""
    size, row = signature.elements * dtype_bytes(signature.dtype), signature.row
    if signature.operator == "":  # of tables that know no more
        return True
    if signature.dtype not in FLOATS or row < 1 or signature.elements % row:
        return False
    moved = signature.bytes_read, signature.bytes_written
    if signature.operator == LAYER_NORM:
        weights, statistics = 2 * row * dtype_bytes(signature.dtype), signature.elements // row * _STATISTICS
        return moved == (size + weights, size + statistics)
    return signature.operator in SOFTMAX and moved == (SOFTMAX[signature.operator] * size, size)
