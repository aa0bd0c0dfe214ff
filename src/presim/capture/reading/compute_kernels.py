"""PyTorch's own compute-bound kernels: attention, grouped and scaled matrix products.

The launch has only a name and a grid; the shapes are those of the operator's tensors.
"""

from __future__ import annotations

import math
from typing import Any

from presim.capture.reading.launch_operators import LaunchingOperator, Operand
from presim.capture.reading.log import Descriptor
from presim.capture.reading.packed_attention import mean_length, packed_tensors, sequence_count
from presim.trace.group_sizes import rounded, sizes_of
from presim.trace.signatures import Attention, Gemm, GroupedGemm, Signature


def signature(work: Descriptor, operator: LaunchingOperator) -> Signature | None:
    """The signature of the main kernel of a compute-bound operator; None for any other kernel."""
    kernel = work.fields.get("name", "")
    name = operator.base_name
    if "attention" in name and _is_attention_kernel(kernel):
        return _attention_kernel(operator, backward="backward" in name)
    if name in ("_grouped_mm", "_scaled_grouped_mm"):
        product = (
            "cutlass" in kernel.lower() and "prepare_grouped_gemm" not in kernel
        )  # prepare_grouped_gemm writes its pointers
        return grouped_product(operator) if product else None
    if name in ("_scaled_mm", "_scaled_mm_v2") and "cutlass" in kernel.lower():
        return _scaled_product(operator)
    if name in ("_sparse_semi_structured_mm", "_sparse_semi_structured_addmm"):
        return _structured_product(operator) if "sparse" in kernel.lower() else None
    return None


_ATTENTION_KERNELS = (
    "flash_fwd",
    "flash_bwd_dq_dk_dv",
    "fmha_cutlassF",
    "fmha_cutlassB",
    "AttentionKernel",
    "AttentionBackwardKernel",
)


def _is_attention_kernel(kernel: str) -> bool:
    return "combine" not in kernel and any(part in kernel for part in _ATTENTION_KERNELS)  # combine joins split keys


def _attention_kernel(operator: LaunchingOperator, *, backward: bool) -> Signature | None:
    """Attention shapes of PyTorch's flash and memory-efficient kernels.

    The fused operators take [batch, heads, length, dim]; ``_flash_attention_*`` and ``_efficient_attention_*`` below
    them take [batch, length, heads, dim]. The first input of a backward operator is the gradient of the output.
    """
    tensors = [operand for operand in operator.inputs if len(operand.shape) == 4]
    if len(tensors) < (4 if backward else 3):
        return _packed_attention_kernel(operator, backward=backward)
    query, key, value = tensors[1:4] if backward else tensors[0:3]
    rows_first = "scaled_dot_product" not in operator.base_name
    length, heads = (1, 2) if rows_first else (2, 1)
    return Attention(
        direction="backward" if backward else "forward",
        batch=query.shape[0],
        heads=query.shape[heads],
        kv_heads=key.shape[heads],
        q_len=query.shape[length],
        kv_len=key.shape[length],
        head_dim=query.shape[3],
        v_head_dim=value.shape[3],
        causal=_is_causal(operator),
        dtype=query.dtype,
        backend="flash" if "flash" in operator.base_name else "efficient",
    )


def _packed_attention_kernel(operator: LaunchingOperator, *, backward: bool) -> Signature | None:
    """Attention within sequences that lie one behind the other; None without their beginnings."""
    tensors, sequences = packed_tensors(operator, backward=backward), sequence_count(operator)
    if tensors is None or not sequences:
        return None
    query, key, value = tensors
    return Attention(
        direction="backward" if backward else "forward",
        batch=sequences,
        heads=query.shape[1],
        kv_heads=key.shape[1],
        q_len=mean_length(query.shape[0], sequences),
        kv_len=mean_length(key.shape[0], sequences),
        head_dim=query.shape[2],
        v_head_dim=value.shape[2],
        causal=_is_causal(operator),
        dtype=query.dtype,
        backend="flash" if "flash" in operator.base_name else "efficient",
    )


def _is_causal(operator: LaunchingOperator) -> bool:
    """Whether attention is causal, from the operator's booleans and integers in order.

    ``_flash_attention_*`` pass (max_q, max_k, causal, …) and ``_efficient_attention_*`` (max_q, max_k, mask_type, …) if
    lengths are given; mask types 1 and 2 are causal. The fused operators pass it as their first flag.
    """
    flags = [scalar for scalar in operator.scalars if scalar in (0, 1, 2)]
    return bool(flags and flags[0])


def grouped_product(operator: LaunchingOperator) -> Signature | None:
    """The grouped product of an operator over groups of matrices; None if its tensors do not fit.

    A matrix without a group dimension is divided among the groups: the left one by rows, the right one by columns, and
    two such matrices along the summed dimension (weight gradients).
    """
    matrices = [operand for operand in operator.inputs if len(operand.shape) in (2, 3)]
    if len(matrices) < 2:
        return None
    lhs, rhs = matrices[0], matrices[1]
    groups = _groups(lhs, rhs, operator)
    rows, columns, depth = math.prod(lhs.shape[:-1]), rhs.shape[-1], lhs.shape[-1]
    if len(lhs.shape) == len(rhs.shape) == 2:
        sizes, depth = _sizes(operator, depth, "k")
        rows, depth = rows * groups, depth // groups
    elif len(rhs.shape) == 2:
        sizes, columns = _sizes(operator, columns, "n")
        columns //= groups
    else:
        sizes, rows = _sizes(operator, rows, "m") if len(lhs.shape) == 2 else ({}, rows)
    return GroupedGemm(groups, rows, columns, depth, lhs.dtype, **sizes)


def _sizes(operator: LaunchingOperator, buffer_size: int, along: str) -> tuple[dict[str, Any], int]:
    """Differing group sizes as fields of `GroupedGemm`, and their sum, because buffers may be larger."""
    sizes = sizes_of(operator.group_ends, buffer_size)
    if sizes is None:
        return {}, buffer_size
    differing = rounded(sizes)
    return {"sizes": differing, "along": along} if differing else {}, sum(sizes)


def _groups(lhs: Operand, rhs: Operand, operator: LaunchingOperator) -> int:
    for operand in (lhs, rhs):
        if len(operand.shape) == 3:
            return operand.shape[0]
    offsets = [operand for operand in operator.inputs if operand.dtype == "int32" and len(operand.shape) == 1]
    return math.prod(offsets[0].shape) if offsets else 1


def _structured_product(operator: LaunchingOperator) -> Signature | None:
    """CUTLASS's product with a 2:4 sparse left operand, given as values and positions."""
    matrices = [operand for operand in operator.inputs if len(operand.shape) == 2]
    metadata_index = next((index for index, operand in enumerate(matrices) if operand.dtype in ("int16", "int32")), 0)
    if not 0 < metadata_index < len(matrices) - 1 or not operator.outputs:
        return None
    values, rhs, out = matrices[metadata_index - 1], matrices[metadata_index + 1], operator.outputs[0].dtype
    return Gemm(
        m=values.shape[0], n=rhs.shape[1], k=rhs.shape[0], batch=1, dtype=values.dtype,
        out_dtype="" if out == values.dtype else out, epilogue="bias" if "addmm" in operator.base_name else "",
        sparsity="2:4 a",
    )  # fmt: skip


def _scaled_product(operator: LaunchingOperator) -> Signature | None:
    """FP8 product with a factor per row and column; some GPUs (B200) do not use cuBLAS for it."""
    matrices = [operand for operand in operator.inputs if len(operand.shape) == 2]
    if len(matrices) < 2 or not operator.outputs:
        return None
    lhs, rhs = matrices[0], matrices[1]
    return Gemm(
        m=lhs.shape[0], n=rhs.shape[1], k=lhs.shape[1], batch=1, dtype=lhs.dtype,
        out_dtype=operator.outputs[0].dtype, layout="NT", scaling="outer",
    )  # fmt: skip
