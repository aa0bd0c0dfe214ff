"""vLLM's Triton kernel for the products of routed experts, whose work depends on values of the device.

Its programs look up their expert and end if there is none. The values are not real under emulation, so that an analysis
of the kernel's code finds no work. Tokens are assumed to choose their experts independently and evenly (vLLM 0.33,
`fused_moe_kernel` in vllm/model_executor/layers/fused_moe).
"""

from __future__ import annotations

from presim.capture.reading.operators import Operand, Operator
from presim.trace.signatures import GroupedGemm, Signature

_KERNEL = "triton::fused_moe_kernel"


def signature(operator: Operator) -> Signature | None:
    """The grouped product over the experts that any token chose; None for another kernel.

    Tensors are the tokens [tokens, k], the weights [experts, n, k], and the outputs [tokens, chosen, n].
    """
    tensors = [operand for operand in operator.inputs + operator.outputs if operand.dtype.startswith(("bf", "fl"))]
    if operator.name != _KERNEL or len(tensors) < 3:
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
