"""Arithmetic, activations, comparisons, masks, casts and fills.

The bytes beyond the first operand determine the second: no bytes mean a scalar, the same number of elements a tensor of
equal size (perhaps of another type), one element a scalar on the GPU, and fewer elements broadcasting over rows or
columns.
"""

from __future__ import annotations

from collections.abc import Iterator

from presim.cost.profile.calls.call import FLOATS, Call, Scalar, Tensor
from presim.trace.dtypes import dtype_bytes
from presim.trace.signatures import Elementwise

CAST = "aten::copy_"
_UNARY: dict[str, tuple[Scalar, ...]] = {  # scalars after the tensor
    "gelu": (), "silu": (), "neg": (), "exp": (), "exp2": (), "expm1": (), "log": (), "log1p": (), "log2": (),
    "tanh": (), "sigmoid": (), "sqrt": (), "rsqrt": (), "abs": (), "reciprocal": (), "cos": (), "sin": (), "erf": (),
    "floor": (), "logical_not": (), "bitwise_not": (),
    "pow": (2.0,), "clamp": (-448.0, 448.0), "clamp_min": (0.0,), "clamp_max": (1.0,), "leaky_relu": (0.01,),
    "fill": (1.0,),
}  # fmt: skip
_BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "remainder")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_LOGIC = ("logical_and", "logical_or", "bitwise_and", "bitwise_or")
_NUMBERS = ("add", "sub", "mul", "div", "remainder", *_COMPARISONS)  # accept a scalar as second operand
_GRADIENTS: dict[str, tuple[Scalar, ...]] = {  # of two tensors of equal size, with scalars after them
    "gelu_backward": (), "silu_backward": (), "tanh_backward": (), "sigmoid_backward": (), "threshold_backward": (0,),
}  # fmt: skip
_MASKED: dict[str, tuple[Scalar, ...]] = {"masked_fill": (0.0,)}
_TERNARY = ("addcmul", "addcdiv", "lerp", "where")
_ONLY_NEW = ("where", "erf", "abs", "maximum", "minimum", *_COMPARISONS, *_LOGIC, "logical_not")  # not in place
_ONLY_IN_PLACE = ("fill", "masked_fill")
_INTEGERS = ("int64", "int32")
_FOR_INTEGERS = ("add", "sub", "mul", "remainder", "neg", "fill", "masked_fill", *_COMPARISONS)
_FOR_COMPLEX = ("add", "sub", "mul", "fill")
_POSITIVE = ("sqrt", "rsqrt", "log", "reciprocal", "pow", "div", "remainder", "log1p", "log2")
_PLAIN = frozenset((*_UNARY, *_BINARY, *_COMPARISONS, *_LOGIC, *_MASKED, *_TERNARY))
OPERATORS = frozenset(
    {f"aten::{name}" for name in _PLAIN - {*_ONLY_IN_PLACE} | {*_GRADIENTS}}
    | {f"aten::{name}_" for name in _PLAIN - {*_ONLY_NEW}}
    | {CAST}
)
_SOURCES = {8: ("float64", "int64"), 4: ("float32", "int32"), 2: ("bfloat16",), 1: ("bool",)}  # of casts, by bytes


def propose(signature: Elementwise) -> Iterator[Call]:
    """Calls whose first operand has the signature's type and elements."""
    name, count = signature.operator.removeprefix("aten::").rstrip("_"), signature.elements
    if count < 1 or not _supports(name, signature.dtype):
        return
    if signature.operator == CAST:
        yield from _casts(signature)
    elif name in _TERNARY:
        yield from _ternary(signature, name)
    elif name in _GRADIENTS:
        tensor = Tensor(signature.dtype, (count,))
        yield Call(signature.operator, (tensor, tensor, *_GRADIENTS[name]), (tensor,))
    else:
        yield from _with_scalar(signature, name)
        if name in (*_BINARY, *_COMPARISONS, *_LOGIC, *_MASKED):
            yield from _with_tensor(signature, name)


def _supports(name: str, dtype: str) -> bool:
    """Whether the operator supports a data type."""
    if name == "copy":
        return True
    if dtype == "bool":
        return name in ("logical_not", "bitwise_not", *_LOGIC, "fill", "where")
    if dtype in _INTEGERS:
        return name in _FOR_INTEGERS
    if dtype == "complex64":
        return name in _FOR_COMPLEX
    return dtype in (*FLOATS, "float64") and name not in (*_LOGIC, "bitwise_not", "where")


def _with_scalar(signature: Elementwise, name: str) -> Iterator[Call]:
    first = Tensor(signature.dtype, (signature.elements,), "positive" if name in _POSITIVE else "normal")
    numbers = _UNARY.get(name, (1 if signature.dtype in _INTEGERS else 1.001,))
    if name in _UNARY or name in _NUMBERS:
        yield Call(signature.operator, (first, *numbers), (_written(signature, first, name),))


def _with_tensor(signature: Elementwise, name: str) -> Iterator[Call]:
    """Calls with a second tensor; one of equal size excludes all others."""
    for dtype, small in _second_operands(signature, name):
        has_equal_bytes = False
        for shape, other in _shapes(signature.elements, small):
            first = Tensor(signature.dtype, shape)
            second = Tensor(dtype, other, "near one" if dtype != "bool" else "normal")
            wide = signature.dtype if dtype == "bool" or not other else _wider(signature.dtype, dtype)
            written = _written(signature, Tensor(wide, shape), name)
            has_equal_bytes = has_equal_bytes or written.operand.bytes == signature.bytes_written
            yield Call(signature.operator, (first, second, *_MASKED.get(name, ())), (written,))
        if has_equal_bytes:
            return


def _second_operands(signature: Elementwise, name: str) -> list[tuple[str, int]]:
    """Possible types and sizes of the second operand, equal sizes before broadcast ones."""
    operand_bytes = signature.bytes_read - signature.elements * dtype_bytes(signature.dtype)
    floats = ("float32", "bfloat16") if signature.dtype in FLOATS else ()
    types = ("bool",) if name in _MASKED else tuple(dict.fromkeys((signature.dtype, *floats)))
    candidates = [
        (dtype, operand_bytes // dtype_bytes(dtype))
        for dtype in types
        if operand_bytes > 0 and operand_bytes % dtype_bytes(dtype) == 0
    ]
    fitting = [(dtype, small) for dtype, small in candidates if signature.elements % small == 0]
    return sorted(fitting, key=lambda candidate: candidate[1] != signature.elements)


def _shapes(count: int, small: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Shapes of a large operand and of a smaller one that is broadcast over rows or columns."""
    if small == count or small == 1:
        yield (count,), ((count,) if small == count else ())
        return
    yield (count // small, small), (small,)
    yield (small, count // small), (small, 1)


def _written(signature: Elementwise, result: Tensor, name: str) -> Tensor:
    if signature.operator.endswith("_"):
        return Tensor(signature.dtype, result.shape)
    truth = name in (*_COMPARISONS, *_LOGIC[:2], "logical_not")
    return Tensor("bool", result.shape) if truth else result


def _wider(first: str, second: str) -> str:
    """The result type of two floating types."""
    if first == second or second not in FLOATS or first not in FLOATS:
        return first
    return "float32"


def _ternary(signature: Elementwise, name: str) -> Iterator[Call]:
    tensor = Tensor(signature.dtype, (signature.elements,), "near one")
    if name == "where":  # the mask counts as the largest operand because it comes first
        dtype = _SOURCES.get(signature.bytes_written // signature.elements, ("",))[0]
        source = Tensor(dtype, tensor.shape)
        yield Call(signature.operator, (Tensor("bool", tensor.shape), source, source), (source,))
        return
    yield Call(signature.operator, (tensor, tensor, tensor), (tensor,))
    if name == "lerp":
        yield Call(signature.operator, (tensor, tensor, 0.1), (tensor,))


def _casts(signature: Elementwise) -> Iterator[Call]:
    """Casts from a type of another size; copies within a type are strided or need no kernel."""
    target = Tensor(signature.dtype, (signature.elements,))
    source_bytes, remainder = divmod(signature.bytes_read, signature.elements)
    if remainder or source_bytes == dtype_bytes(signature.dtype):
        return
    sources = _SOURCES.get(source_bytes, ())
    for source in sources[:1] if "int" not in signature.dtype else sources[-1:]:
        yield Call(CAST, (target, Tensor(source, target.shape)), (target,))
