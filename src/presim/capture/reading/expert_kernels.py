"""Kernels of routed experts: their products, and casts to FP4 in front of them.

Which experts a token chooses is a value of the device, which is not real under emulation: tokens are assumed to choose
independently and evenly. Packed weights have shapes of their own, and buffers have room for many more rows. Kernels are
those of vLLM 0.33 and of triton_kernels, with which it runs gpt-oss's MXFP4 weights.
"""

from __future__ import annotations

from collections.abc import Callable

from presim.capture.reading.launch_operators import LaunchingOperator, Operand
from presim.capture.reading.log import Descriptor
from presim.trace.signatures import MARLIN, Elementwise, GroupedGemm, Signature

_FP4 = "float4_e2m1fn_x2"
_PRODUCT = "GemmUniversal"  # in names of CUTLASS's products, whose operators launch other kernels as well


def signature(work: Descriptor, operator: LaunchingOperator) -> Signature | None:
    """The product over the experts that any token chose, or the cast; None for another kernel."""
    make = _OPERATORS.get(operator.name)
    return make(work, operator) if make else None


def _num_used_experts(experts: int, experts_per_token: int, tokens: int) -> int:
    """How many experts any token chose."""
    return max(round(experts * (1 - (1 - min(experts_per_token / experts, 1.0)) ** tokens)), 1)


def _fused(_: Descriptor, operator: LaunchingOperator) -> Signature | None:
    """vLLM's kernel in Triton: tokens [tokens, k], weights [experts, n, k], outputs [tokens, chosen, n]."""
    tensors = [operand for operand in operator.inputs + operator.outputs if operand.dtype.startswith(("bf", "fl"))]
    if len(tensors) < 3:
        return None
    weights = max((operand for operand in tensors if len(operand.shape) == 3), key=_elements, default=None)
    if weights is None:
        return None
    experts, n, k = weights.shape
    three_dimensional = [tensor for tensor in tensors if len(tensor.shape) == 3 and tensor is not weights]
    outputs = [tensor for tensor in three_dimensional if tensor.shape[-1] == n]
    if not outputs:
        return None
    tokens, experts_per_token = outputs[0].shape[:2]
    used_experts = _num_used_experts(experts, experts_per_token, tokens)
    return GroupedGemm(used_experts, tokens * experts_per_token, n, k, tensors[0].dtype, out_dtype=outputs[0].dtype)


def _triton_kernels(_: Descriptor, operator: LaunchingOperator) -> Signature | None:
    """Outputs [1, choices, n, half if gated], rows [1, rows, k], 4-bit weights, and biases [experts, n]."""
    rows = [
        operand
        for operand in operator.inputs + operator.outputs
        if operand.dtype == "bfloat16" and len(operand.shape) == 3
    ]
    packed = _first(operator.inputs, "uint8", 3)
    biases = _first(operator.inputs, "float32", 2)
    if packed is None or biases is None or len(rows) < 2:
        return None
    experts, n = biases.shape
    choices, k = rows[0].shape[1], rows[1].shape[2]
    return GroupedGemm(_num_used_experts(experts, 1, choices), choices, n, k, "bfloat16", b_dtype=_FP4)


def _marlin(work: Descriptor, operator: LaunchingOperator) -> Signature | None:
    """Packed weights [experts, k / 16, 2 n], outputs [tokens * chosen, n]. Factors of 8 bits are those of MXFP4."""
    packed, routing_weights = _first(operator.inputs, "int32", 3), _first(operator.inputs, "float32", 2)
    is_marlin = MARLIN in work.fields.get("name", "").lower()
    if packed is None or routing_weights is None or not operator.outputs or not is_marlin:
        return None
    lhs, out = operator.inputs[0], operator.outputs[0]
    tokens, experts_per_token = routing_weights.shape
    fp4 = any(operand.dtype.startswith("float8") for operand in operator.inputs)
    used_experts = _num_used_experts(packed.shape[0], experts_per_token, tokens)
    return GroupedGemm(
        used_experts, out.shape[0], out.shape[1], lhs.shape[1], lhs.dtype, b_dtype=_FP4 if fp4 else "uint4"
    )


def _cutlass(work: Descriptor, operator: LaunchingOperator) -> Signature | None:
    """FP4 on both sides: rows [choices, k / 2] by expert, weights [experts, n, k / 2]."""
    packed, rows = _first(operator.inputs, "uint8", 3), _first(operator.inputs, "uint8", 2)
    if packed is None or rows is None or not operator.outputs or _PRODUCT not in work.fields.get("name", ""):
        return None
    choices, n = operator.outputs[0].shape
    used, out = _num_used_experts(packed.shape[0], 1, choices), operator.outputs[0].dtype
    return GroupedGemm(used, choices, n, 2 * rows.shape[1], _FP4, out_dtype=out)


def _cast(_: Descriptor, operator: LaunchingOperator) -> Signature | None:
    """Rows of 16 bits become FP4 with a factor for each 16 values."""
    source = _first(operator.inputs, "bfloat16", 2) or _first(operator.inputs, "float16", 2)
    packed = _first(operator.outputs, "uint8", 2)
    if source is None or packed is None:
        return None
    written = packed.bytes + packed.bytes // 8
    return Elementwise(source.bytes, written, source.elements, source.dtype, operator=operator.name)


def _first(operands: tuple[Operand, ...], dtype: str, dimensions: int) -> Operand | None:
    return next((operand for operand in operands if operand.dtype == dtype and len(operand.shape) == dimensions), None)


def _elements(operand: Operand) -> int:
    return operand.elements


_OPERATORS: dict[str, Callable[[Descriptor, LaunchingOperator], Signature | None]] = {
    "triton::fused_moe_kernel": _fused,
    "triton::_matmul_ogs": _triton_kernels,
    "_moe_C::moe_wna16_marlin_gemm": _marlin,
    "_C::cutlass_fp4_group_mm": _cutlass,
    "_C::cutlass_mxfp4_group_mm": _cutlass,
    "_C::scaled_fp4_experts_quant": _cast,
    "_C::mxfp4_experts_quant": _cast,
    "_C::silu_and_mul_scaled_fp4_experts_quant": _cast,
    "_C::silu_and_mul_mxfp4_experts_quant": _cast,
}
