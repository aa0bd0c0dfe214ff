"""Norms over the rows of one tensor, with PyTorch's weights and statistics.

Their gradients are two kernels that PyTorch launches one after the other, and each can be requested separately. A
capture sees the whole operator and counts the other kernel's outputs to the first: some KiB of weight gradients beside
MiB, which this call does not write.
"""

from __future__ import annotations

from collections.abc import Iterator

from presim.cost.profile.calls.call import FLOATS, Argument, Call, Tensor
from presim.trace.signatures import Normalization

_LAYER_NORM = "aten::native_layer_norm"
_RMS_NORM = "aten::_fused_rms_norm"
OPERATORS = frozenset(name + end for name in (_LAYER_NORM, _RMS_NORM) for end in ("", "_backward"))
_OF_INPUT, _OF_WEIGHTS = "layer_norm_grad_input", "GammaBetaBackward"  # parts of PyTorch's kernel names
_EPSILON = 1e-5


def propose(signature: Normalization) -> Iterator[Call]:
    """Forward, or each of the two backward kernels; rows are complete."""
    row = signature.row
    if signature.dtype not in FLOATS or row < 1 or signature.elements % row:
        return
    yield from _norm(signature.operator, Tensor(signature.dtype, (signature.elements // row, row)))


def _norm(operator: str, tensor: Tensor) -> Iterator[Call]:
    rows, row = tensor.shape
    weight, statistic = Tensor(tensor.dtype, (row,)), Tensor("float32", (rows, 1), "positive")
    if operator == _LAYER_NORM:
        yield Call(operator, (tensor, (row,), weight, weight, _EPSILON), (tensor, statistic, statistic))
    elif operator == _RMS_NORM:
        yield Call(operator, (tensor, (row,), weight, _EPSILON), (tensor, statistic))
    else:
        layer = operator.startswith(_LAYER_NORM)
        statistics_and_weights = (statistic, statistic, weight, weight) if layer else (statistic, weight)
        outputs = (tensor, weight, weight) if layer else (tensor, weight)
        for gradient_mask, kernel in (((True, False), _OF_INPUT), ((False, True), _OF_WEIGHTS)):
            mask: Argument = (*gradient_mask, gradient_mask[1]) if layer else gradient_mask
            yield Call(operator, (tensor, tensor, (row,), *statistics_and_weights, mask), outputs, kernel=kernel)
