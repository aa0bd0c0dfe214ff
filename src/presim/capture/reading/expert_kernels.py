"""Triton kernels for the products of routed experts, whose work depends on values of the device.

Their programs look up their expert and end if there is none. The values are not real under emulation, so that an
analysis of the kernel's code finds no work, or that of all experts. Tokens are assumed to choose their experts
independently and evenly (vLLM 0.33, `fused_moe_kernel` in vllm/model_executor/layers/fused_moe, and `_matmul_ogs` of
triton_kernels, which gpt-oss's MXFP4 weights run with).
"""

from __future__ import annotations

from presim.capture.reading.operators import Operand, Operator
from presim.trace.signatures import GroupedGemm, Signature

_KERNEL, _OF_TRITON_KERNELS = "triton::fused_moe_kernel", "triton::_matmul_ogs"


def signature(operator: Operator) -> Signature | None:
    """The grouped product over the experts that any token chose; None for another kernel."""
    if operator.name == _OF_TRITON_KERNELS:
        return _unpacked(operator)
    return _fused(operator) if operator.name == _KERNEL else None


def _unpacked(operator: Operator) -> Signature | None:
    """Tensors are outputs [1, choices, n, half if gated], rows [1, rows, k], 4-bit weights, and biases [experts, n]."""
    rows = [one for one in operator.inputs + operator.outputs if one.dtype == "bfloat16" and len(one.shape) == 3]
    packed = next((one for one in operator.inputs if len(one.shape) == 3 and one.dtype == "uint8"), None)
    biases = next((one for one in operator.inputs if len(one.shape) == 2 and one.dtype == "float32"), None)
    if packed is None or biases is None or len(rows) < 2:
        return None
    experts, n = biases.shape
    choices, k = rows[0].shape[1], rows[1].shape[2]
    used = max(round(experts * (1 - (1 - 1 / experts) ** choices)), 1)
    return GroupedGemm(used, choices, n, k, "bfloat16", b_dtype="float4_e2m1fn_x2")


def _fused(operator: Operator) -> Signature | None:
    """Tensors are the tokens [tokens, k], the weights [experts, n, k], and the outputs [tokens, chosen, n]."""
    tensors = [operand for operand in operator.inputs + operator.outputs if operand.dtype.startswith(("bf", "fl"))]
    if len(tensors) < 3:
        return None
    weights = max((operand for operand in tensors if len(operand.shape) == 3), key=_elements, default=None)
    if weights is None:
        return None
    experts, n, k = weights.shape
    outputs = [one for one in tensors if one is not weights and len(one.shape) == 3 and one.shape[-1] == n]
    if not outputs:
        return None
    tokens, chosen, _ = outputs[0].shape
    share = min(chosen / experts, 1.0)
    used = max(round(experts * (1 - (1 - share) ** tokens)), 1)
    return GroupedGemm(used, tokens * chosen, n, k, tensors[0].dtype, out_dtype=outputs[0].dtype)


def _elements(operand: Operand) -> int:
    return operand.elements
