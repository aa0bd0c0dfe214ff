"""Softmax over the rows of one tensor, and the loss that selects one element per row."""

from __future__ import annotations

from collections.abc import Iterator

from presim.cost.profile.calls.call import FLOATS, Call, Tensor
from presim.trace.dtypes import dtype_bytes
from presim.trace.signatures import Softmax

_FORWARD = ("aten::_softmax", "aten::_log_softmax")
_BACKWARD = tuple(f"{name}_backward_data" for name in _FORWARD)
_MULTIPLIES = _BACKWARD[0]  # multiplies gradients by results first, in a separate kernel
_LOSS = "aten::nll_loss_forward"  # its backward first zeroes a tensor, which would take most of the time
OPERATORS = frozenset((*_FORWARD, *_BACKWARD, _LOSS))
_MEAN, _IGNORED = 1, -100  # of a loss: the reduction mode and the ignored label


def propose(signature: Softmax) -> Iterator[Call]:
    """Calls by operator, over complete rows."""
    if signature.dtype not in FLOATS:
        return
    if signature.operator == _LOSS:
        yield from _loss(signature)
    elif signature.row > 0 and signature.elements % signature.row == 0:
        yield from _softmax(
            signature.operator, Tensor(signature.dtype, (signature.elements // signature.row, signature.row))
        )


def _softmax(operator: str, tensor: Tensor) -> Iterator[Call]:
    if operator in _BACKWARD:
        result = Tensor(tensor.dtype, tensor.shape, "positive")
        first = Call("aten::mul", (tensor, result), (tensor,)) if operator == _MULTIPLIES else None
        yield Call(operator, (tensor, result, -1, f"torch.{tensor.dtype}"), (tensor,), first=first)
        return
    yield Call(operator, (tensor, -1, False), (tensor,))
    if tensor.dtype == "float16":  # the only type that PyTorch widens in the same kernel
        yield Call(operator, (tensor, -1, True), (Tensor("float32", tensor.shape),))


def _loss(signature: Softmax) -> Iterator[Call]:
    """Each row's label selects one of its elements; labels are uniform over the row."""
    rows = signature.bytes_read // (dtype_bytes(signature.dtype) + dtype_bytes("int64"))
    if rows < 1 or signature.elements % rows:
        return
    row = signature.elements // rows
    scores = Tensor(signature.dtype, (rows, row))
    labels = Tensor("int64", (rows,), below=row)
    scalar = Tensor(signature.dtype, ())
    yield Call(signature.operator, (scores, labels, None, _MEAN, _IGNORED), (scalar, scalar))
