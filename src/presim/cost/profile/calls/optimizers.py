"""Operators over lists of tensors: fused optimizers, the parts of other optimizers, copies of many parameters.

A launch takes a limited number of chunks of 65,536 elements; a longer list is divided among launches. A signature
describes one launch, so its tensors are multiples of a chunk with the remainder in the last one, and one launch is
enough again. Second moments are positive like squares, and each tensor has its own step count.
"""

from __future__ import annotations

from collections.abc import Iterator

from presim.cost.profile.calls.call import FLOATS, Argument, Call, Scalar, Tensors
from presim.trace.signatures import Optimizer

_CHUNK = 65536  # elements: aten/src/ATen/native/cuda/MultiTensorApply.cuh
_ADAM: tuple[tuple[str, Scalar], ...] = (
    ("lr", 1e-4), ("beta1", 0.9), ("beta2", 0.999), ("weight_decay", 0.01), ("eps", 1e-8), ("maximize", False),
)  # fmt: skip
_SGD: tuple[tuple[str, Scalar], ...] = (
    ("weight_decay", 0.01), ("momentum", 0.9), ("lr", 1e-4), ("dampening", 0.0), ("nesterov", False),
    ("maximize", False), ("is_first_step", False),
)  # fmt: skip
_UNARY = ("sqrt", "neg", "abs", "reciprocal", "exp", "zero")
_SCALED = ("mul", "add", "sub", "div", "clamp_min", "maximum", "minimum")  # with a scalar or another list
_OF_THREE = ("addcmul", "addcdiv")
_EACH = (*_UNARY, *_SCALED, *_OF_THREE, "lerp", "copy")
_FUSED = ("aten::_fused_adam_", "aten::_fused_adamw_", "aten::_fused_sgd_")
_IN_PLACE = ("zero", "copy")  # in place only
OPERATORS = frozenset(
    {*_FUSED}
    | {f"aten::_foreach_{name}_" for name in _EACH}
    | {f"aten::_foreach_{name}" for name in _EACH if name not in _IN_PLACE}
)


def propose(signature: Optimizer) -> Iterator[Call]:
    """Calls over as many tensors as in the launch, with the same total number of elements."""
    if signature.elements < signature.fused_tensors or signature.dtype not in FLOATS:
        return
    shapes = _pieces(signature.elements, signature.fused_tensors)
    if signature.operator in _FUSED:
        yield from _fused(signature.operator, signature.dtype, shapes)
        return
    name, tensors = signature.operator.removeprefix("aten::_foreach_").rstrip("_"), Tensors(signature.dtype, shapes)
    positive, near_one = Tensors(signature.dtype, shapes, "positive"), Tensors(signature.dtype, shapes, "near one")
    outputs = () if signature.operator.endswith("_") else (tensors,)
    several: list[tuple[Argument, ...]] = []
    if name in _UNARY:
        several = [(positive,)]
    elif name in _SCALED:
        several = [(tensors, 1.001), (tensors, near_one)]
    elif name == "lerp":
        several = [(tensors, tensors, 0.1)]
    elif name == "copy":
        several = [(tensors, Tensors(dtype, shapes)) for dtype in (signature.dtype, "float32", "bfloat16")]
    elif name in _OF_THREE:
        several = [(tensors, tensors, positive, -1e-4)]
    for arguments in several:
        yield Call(signature.operator, arguments, outputs)


def _pieces(elements: int, tensors: int) -> tuple[tuple[int, ...], ...]:
    chunks = elements // tensors // _CHUNK
    size = chunks * _CHUNK if chunks else elements // tensors
    larger_tensors = (elements - size * tensors) // _CHUNK if chunks else 0  # tensors with one extra chunk
    sizes = [size + _CHUNK * (index < larger_tensors) for index in range(tensors)]
    sizes[-1] += elements - sum(sizes)
    return tuple((length,) for length in sizes)


def _fused(operator: str, dtype: str, shapes: tuple[tuple[int, ...], ...]) -> Iterator[Call]:
    parameters, squares = Tensors(dtype, shapes), Tensors(dtype, shapes, "positive")
    none = Tensors(dtype, ())
    steps = Tensors("float32", ((),) * len(shapes), "positive")
    if operator == "aten::_fused_sgd_":
        for buffers in (parameters, none):
            momentum = {"momentum": 0.9 if buffers.shapes else 0.0}
            options = tuple((name, momentum.get(name, value)) for name, value in _SGD)
            yield Call(operator, (parameters, parameters, buffers), options=options)
        return
    for largest, amsgrad in ((none, False), (squares, True)):
        options = (*_ADAM, ("amsgrad", amsgrad))
        yield Call(operator, (parameters, parameters, parameters, squares, largest, steps), options=options)
