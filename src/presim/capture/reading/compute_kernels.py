"""PyTorch's own kernels that do what a library does elsewhere: attention, grouped products, and scaled ones.

The launch is a name and a grid; the shapes are those of the operator's tensors.
"""

from __future__ import annotations

import math
from typing import Any

from presim.capture.reading.group_sizes import rounded, sizes_of
from presim.capture.reading.log import Descriptor
from presim.capture.reading.operators import Operand, Operator
from presim.trace.signatures import Attention, Gemm, GroupedGemm, Signature


def signature(work: Descriptor, operator: Operator) -> Signature | None:
    """The signature of a launched kernel that is the main one of a compute-bound operator, or None."""
    kernel = work.fields.get("name", "")
    name = operator.base_name
    if "attention" in name and _is_attention_kernel(kernel):
        return _attention_kernel(operator, backward="backward" in name)
    if name in ("_grouped_mm", "_scaled_grouped_mm"):
        product = "cutlass" in kernel.lower() and "prepare_grouped_gemm" not in kernel  # which writes its pointers
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
    return "combine" not in kernel and any(part in kernel for part in _ATTENTION_KERNELS)  # which joins split keys


def _attention_kernel(operator: Operator, *, backward: bool) -> Signature | None:
    """Shapes of PyTorch's own flash and memory-efficient attention.

    The fused operators take [batch, heads, length, dim]; ``_flash_attention_*`` and ``_efficient_attention_*``
    underneath take [batch, length, heads, dim]. In backward the first input is the gradient of the output.
    """
    tensors = [operand for operand in operator.inputs if len(operand.shape) == 4]
    if len(tensors) < (4 if backward else 3):
        return None
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


def _is_causal(operator: Operator) -> bool:
    """From the operator's scalars, which are its booleans and integers in order.

    ``_flash_attention_*`` pass (max_q, max_k, causal, …) and ``_efficient_attention_*`` (max_q, max_k, mask_type,
    …) where lengths are given; a mask type of 1 or 2 is causal. The fused operators pass it as their first flag.
    """
    flags = [scalar for scalar in operator.scalars if scalar in (0, 1, 2)]
    return bool(flags and flags[0])


def grouped_product(operator: Operator) -> Signature | None:
    """The product that an operator over groups of matrices stands for; None where its tensors are none of that.

    A matrix that is no stack of them is divided among the groups: on the left by rows, on the right by columns, and two
    such along the dimension that is summed over (weight gradients).
    """
    matrices = [operand for operand in operator.inputs if len(operand.shape) in (2, 3)]
    if len(matrices) < 2:
        return None
    left, right = matrices[0], matrices[1]
    groups = _groups(left, right, operator)
    rows, columns, depth = math.prod(left.shape[:-1]), right.shape[-1], left.shape[-1]
    if len(left.shape) == len(right.shape) == 2:
        told, depth = _sizes(operator, depth, "k")
        rows, depth = rows * groups, depth // groups
    elif len(right.shape) == 2:
        told, columns = _sizes(operator, columns, "n")
        columns //= groups
    else:
        told, rows = _sizes(operator, rows, "m") if len(left.shape) == 2 else ({}, rows)
    return GroupedGemm(groups, rows, columns, depth, left.dtype, **told)


def _sizes(operator: Operator, whole: int, along: str) -> tuple[dict[str, Any], int]:
    """Sizes of groups that differ, and how much of the dimension all have together: buffers are larger at times."""
    sizes = sizes_of(operator.ends, whole)
    if sizes is None:
        return {}, whole
    differing = rounded(sizes)
    return {"sizes": differing, "along": along} if differing else {}, sum(sizes)


def _groups(left: Operand, right: Operand, operator: Operator) -> int:
    for operand in (left, right):
        if len(operand.shape) == 3:
            return operand.shape[0]
    offsets = [operand for operand in operator.inputs if operand.dtype == "int32" and len(operand.shape) == 1]
    return math.prod(offsets[0].shape) if offsets else 1


def _structured_product(operator: Operator) -> Signature | None:
    """CUTLASS's product with a 2:4 operand on the left: the values that are kept, where they lie, the other operand."""
    matrices = [operand for operand in operator.inputs if len(operand.shape) == 2]
    places = next((place for place, operand in enumerate(matrices) if operand.dtype in ("int16", "int32")), 0)
    if not 0 < places < len(matrices) - 1 or not operator.outputs:
        return None
    kept, right, out = matrices[places - 1], matrices[places + 1], operator.outputs[0].dtype
    return Gemm(
        m=kept.shape[0], n=right.shape[1], k=right.shape[0], batch=1, dtype=kept.dtype,
        out_dtype="" if out == kept.dtype else out, epilogue="bias" if "addmm" in operator.base_name else "",
        sparsity="2:4 a",
    )  # fmt: skip


def _scaled_product(operator: Operator) -> Signature | None:
    """FP8 matrices with a factor for each row and column; not on every GPU is cuBLAS asked for it (not on a B200)."""
    matrices = [operand for operand in operator.inputs if len(operand.shape) == 2]
    if len(matrices) < 2 or not operator.outputs:
        return None
    left, right = matrices[0], matrices[1]
    return Gemm(
        m=left.shape[0], n=right.shape[1], k=left.shape[1], batch=1, dtype=left.dtype,
        out_dtype=operator.outputs[0].dtype, layout="NT", scaling="outer",
    )  # fmt: skip
