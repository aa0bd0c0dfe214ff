"""Random numbers: dropout, its gradient, and tensors filled in place."""

from __future__ import annotations

from collections.abc import Iterator

from presim.cost.profile.calls.call import FLOATS, Call, Tensor
from presim.trace.signatures import Random

_FILLED = ("normal", "uniform", "exponential", "bernoulli", "random")
_KEPT = 0.9  # share of elements that dropout keeps; its time does not depend on it
OPERATORS = frozenset(
    {f"aten::{name}_" for name in _FILLED} | {"aten::native_dropout", "aten::native_dropout_backward"}
)


def propose(signature: Random) -> Iterator[Call]:
    """The only call, determined by the number of elements."""
    is_integer = signature.dtype in ("int64", "int32") and signature.operator == "aten::random_"
    if not (is_integer or signature.dtype in FLOATS):
        return
    tensor = Tensor(signature.dtype, (signature.elements,))
    mask = Tensor("bool", tensor.shape)
    if signature.operator == "aten::native_dropout":
        yield Call(signature.operator, (tensor, 1 - _KEPT, True), (tensor, mask))
    elif signature.operator == "aten::native_dropout_backward":
        yield Call(signature.operator, (tensor, mask, 1 / _KEPT), (tensor,))
    else:
        numbers = (0.5,) if signature.operator == "aten::bernoulli_" else ()
        yield Call(signature.operator, (tensor, *numbers), (tensor,))
