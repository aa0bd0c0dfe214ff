"""Kernels of CUDA extensions, and one of PyTorch, whose work does not follow from the sizes of their tensors.

Caches and packed weights are passed whole although only a few rows are used, and a fused operator launches kernels for
parts of its work. Each function handles one family of operators by registered name (vLLM 0.33, bitsandbytes 0.50).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from presim.capture.reading.launch_operators import LaunchingOperator
from presim.capture.reading.log import Descriptor
from presim.trace.dtypes import dtype_bytes
from presim.trace.signatures import (
    MACHETE,
    MARLIN,
    NF4,
    TINYGEMM,
    Attention,
    Elementwise,
    Gemm,
    Index,
    Signature,
    Softmax,
)

_CAUSAL = {
    "fwd": 2,
    "varlen_fwd": 3,
}  # index of `causal` among the booleans and integers of vLLM's FlashAttention 3 and 2


def signature(work: Descriptor, operator: LaunchingOperator) -> Signature | None:
    """The signature of an extension's kernel; None if the tensors of its operator describe it."""
    make = _OPERATORS.get(operator.name)
    return make(work, operator) if make else None


def _paged_attention(work: Descriptor, operator: LaunchingOperator) -> Signature | None:
    """Attention of [tokens, heads, dim] queries over a cache of [blocks, block size, kv heads, dim].

    With DeepSeek's latent attention, queries and keys come in two parts: one with rotary embedding (64 wide), and the
    compressed values (512), which are keys as well. Lengths of single sequences are device values. Queries are assumed
    to be evenly distributed, and each sequence to be as long as the longest, which is an argument.
    """
    bounds = [operand for operand in operator.inputs if operand.dtype == "int32" and len(operand.shape) == 1]
    if not bounds or len(operator.scalars) < 4 or len(operator.inputs) < 3:
        return None
    kernel = work.fields.get("name", "").lower()
    if "combine" in kernel or "prepare" in kernel or "flash" not in kernel:
        return _combine_kernel(operator)
    query, key, value = operator.inputs[:3]
    sequences = max(1, bounds[0].elements - 1)
    causal = operator.scalars[_CAUSAL[operator.base_name]]
    return Attention(
        direction="forward",
        batch=sequences,
        heads=query.shape[-2],
        kv_heads=key.shape[-2],
        q_len=max(1, round(query.shape[0] / sequences)),
        kv_len=operator.scalars[1],
        head_dim=query.shape[-1] + (value.shape[-1] if value.shape[-1] > query.shape[-1] else 0),
        v_head_dim=value.shape[-1],
        causal=bool(causal),
        dtype=query.dtype,
        backend="flash3" if operator.base_name == "fwd" else "flash",
        paged=True,
    )


def _combine_kernel(operator: LaunchingOperator) -> Signature:
    """The kernel that combines split keys (at least two float32 parts per element) or plans the splits."""
    query = operator.inputs[0]
    return Elementwise(8 * query.elements, query.bytes, query.elements, "float32", operator=operator.name)


def _cache_write(work: Descriptor, operator: LaunchingOperator) -> Signature | None:
    """New keys and values are written to their cache slots."""
    key, value = operator.inputs[:2]
    slots = sum(operand.bytes for operand in operator.inputs if operand.dtype == "int64")
    cache_bytes = key.bytes + value.bytes
    return Index(cache_bytes + slots, cache_bytes, key.elements, key.dtype, operator=operator.name)


def _rotary(work: Descriptor, operator: LaunchingOperator) -> Signature | None:
    """Rotary embedding of queries and keys in place, with one table row per position."""
    positions, table = operator.inputs[0], operator.inputs[-1]
    turned = sum(operand.bytes for operand in operator.outputs)
    rows = positions.elements * table.shape[-1] * dtype_bytes(table.dtype)
    largest = max(operand.elements for operand in operator.outputs)
    return Elementwise(
        turned + rows + positions.bytes, turned, largest, operator.outputs[0].dtype, operator=operator.name
    )


def _scaled_product(work: Descriptor, operator: LaunchingOperator) -> Signature | None:
    """CUTLASS's product of FP8 or int8 matrices into an output argument."""
    matrices = [operand for operand in operator.inputs if len(operand.shape) == 2]
    if len(matrices) < 2 or not operator.outputs or "cutlass" not in work.fields.get("name", ""):
        return None
    lhs, rhs, *scales = matrices
    rows, columns = operator.outputs[0].shape
    blocks = bool(scales) and scales[0].dtype == "float32" and scales[0].shape[1] > 1  # several in a row of the left
    return Gemm(
        m=rows, n=columns, k=lhs.shape[1], batch=1, dtype=lhs.dtype, b_dtype=rhs.dtype,
        out_dtype=operator.outputs[0].dtype, scaling="block" if blocks else "outer",
    )  # fmt: skip


def _product_into(work: Descriptor, operator: LaunchingOperator) -> Signature | None:
    """A product of two matrices into an output argument."""
    matrices = [operand for operand in operator.inputs if len(operand.shape) == 2]
    if len(matrices) < 2 or not operator.outputs or len(operator.outputs[0].shape) != 2:
        return None
    rows, columns = operator.outputs[0].shape
    return Gemm(m=rows, n=columns, k=matrices[0].shape[1], batch=1, dtype=matrices[0].dtype, layout="NT")


def _fp4_product(work: Descriptor, operator: LaunchingOperator) -> Signature | None:
    """CUTLASS's product of rows [m, k / 2] and weights [n, k / 2], two values of FP4 a byte, with factors of blocks."""
    if "cutlass" not in work.fields.get("name", "") or not operator.outputs:
        return None
    lhs, out = operator.inputs[0], operator.outputs[0]
    return Gemm(
        m=out.shape[0], n=out.shape[1], k=2 * lhs.shape[1], batch=1, dtype="float4_e2m1fn_x2", out_dtype=out.dtype,
        layout="NT", scaling="block",
    )  # fmt: skip


def _unpacking_product(work: Descriptor, operator: LaunchingOperator) -> Signature | None:
    """vLLM's product of 16-bit rows [m, k] and weights in 4 bits, whose shape is the kernel's own."""
    scaling = MACHETE if "machete" in operator.name else MARLIN
    if scaling not in work.fields.get("name", "").lower() or not operator.outputs:
        return None
    lhs, out = operator.inputs[0], operator.outputs[0]
    return Gemm(out.shape[0], out.shape[1], lhs.shape[1], 1, lhs.dtype, b_dtype="uint4", layout="NT", scaling=scaling)


def _grouped_choice(work: Descriptor, operator: LaunchingOperator) -> Signature | None:
    """One kernel scores each token's experts and chooses among those of the best groups; nothing is sorted."""
    scores = operator.inputs[0]
    written = sum(operand.bytes for operand in operator.outputs)
    return Softmax(scores.bytes, written, scores.elements, scores.dtype, operator=operator.name, row=scores.shape[-1])


def _four_bit_product(work: Descriptor, operator: LaunchingOperator) -> Signature | None:
    """For many rows, dequantisation (scales first) and a cuBLAS product; for few rows, one fused kernel."""
    lhs, packed = operator.inputs[:2]
    kernel = work.fields.get("name", "")
    weights = 2 * packed.elements
    if "kDequantizeBlockwise" in kernel:
        threads = math.prod(work.numbers("grid") + work.numbers("block"))
        scales = [operand for operand in operator.inputs if operand.dtype == "uint8" and operand is not packed]
        if scales and threads * 16 < packed.elements:  # the scales themselves are quantised to a byte
            size = scales[0].elements
            return Elementwise(size, 4 * size, size, "float32", operator=operator.name)
        written = weights * dtype_bytes(lhs.dtype)
        return Elementwise(packed.bytes + weights // 64 * 4, written, weights, lhs.dtype, operator=operator.name)
    inner = lhs.shape[-1]
    return Gemm(lhs.elements // inner, weights // inner, inner, 1, lhs.dtype, b_dtype="uint4", scaling=NF4)


def _packed_product(_: Descriptor, operator: LaunchingOperator) -> Signature | None:
    """PyTorch's product of 16-bit rows with 4-bit weights; the packed weights' shape is the kernel's own."""
    lhs, packed = operator.inputs[:2]
    rows, inner = lhs.shape
    columns = packed.bytes * 2 // inner
    return Gemm(rows, columns, inner, 1, lhs.dtype, b_dtype="uint4", layout="NT", scaling=TINYGEMM)


_OPERATORS: dict[str, Callable[[Descriptor, LaunchingOperator], Signature | None]] = {
    "_vllm_fa3_C::fwd": _paged_attention,
    "_vllm_fa2_C::varlen_fwd": _paged_attention,
    "_C_cache_ops::reshape_and_cache_flash": _cache_write,
    "_C_cache_ops::reshape_and_cache": _cache_write,
    "_C_cache_ops::concat_and_cache_mla": _cache_write,
    "_C::rotary_embedding": _rotary,
    "_C::cutlass_scaled_mm": _scaled_product,
    "_C::dsv3_fused_a_gemm": _product_into,
    "_C::cutlass_scaled_fp4_mm": _fp4_product,
    "_C::machete_mm": _unpacking_product,
    "_C::marlin_gemm": _unpacking_product,
    "_moe_C::grouped_topk": _grouped_choice,
    "bitsandbytes::gemm_4bit": _four_bit_product,
    "aten::_weight_int4pack_mm": _packed_product,
}
