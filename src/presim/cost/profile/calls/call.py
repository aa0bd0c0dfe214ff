"""A call of one operator: its tensors by type, shape and kind of values, and the signature it is captured as."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from presim.capture.reading.classify import classify_launch
from presim.capture.reading.launch_operators import LaunchingOperator, Operand
from presim.capture.reading.log import Descriptor
from presim.capture.reading.pointwise_kernels import operands_by_layout
from presim.trace.signatures import Elementwise, MemoryBound, Optimizer, Signature, vectorised

FLOATS = ("bfloat16", "float16", "float32")
_ROUNDED = 16  # bytes: rounding by half a byte for each tensor and counter, in shares of a launch


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A contiguous tensor on the GPU.

    ``values``: normal; positive; near one (stays finite under repeated multiplication). Indices are below ``below``,
    drawn uniformly like random tokens; tokens of text repeat more often and hit caches.
    """

    dtype: str
    shape: tuple[int, ...]
    values: str = "normal"
    below: int = 2

    @property
    def operand(self) -> Operand:
        """The operand as a capture records it."""
        count, strides = 1, list[int]()
        for size in reversed(self.shape):
            strides.insert(0, count)
            count *= size
        return Operand(self.dtype, count, True, self.shape, strides=tuple(strides))


@dataclasses.dataclass(frozen=True)
class Tensors:
    """A list of contiguous tensors on the GPU, by their shapes."""

    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    values: str = "normal"
    below: int = 2

    @property
    def members(self) -> tuple[Tensor, ...]:
        """The tensors of the list."""
        return tuple(Tensor(self.dtype, shape, self.values, self.below) for shape in self.shapes)

    @property
    def operand(self) -> Operand:
        """The list as one operand, as a capture records it."""
        elements = sum(member.operand.elements for member in self.members)
        return Operand(self.dtype, elements, True, tensors=len(self.shapes))


Scalar: TypeAlias = "bool | int | float | str | None"
Argument: TypeAlias = "Tensor | Tensors | Scalar | tuple[Scalar, ...]"


@dataclasses.dataclass(frozen=True)
class Call:
    """``operator(*arguments, **options)`` with its outputs, which are all of the measured kernel."""

    operator: str  # name in a capture, e.g. aten::add
    arguments: tuple[Argument, ...]
    outputs: tuple[Tensor | Tensors, ...] = ()
    options: tuple[tuple[str, Argument], ...] = ()
    kernel: str = ""  # for an operator with several kernels, part of the measured one's name
    expanded: int = 1  # of a gather: elements per row for which the operator sees an expanded index
    first: Call | None = None  # work that PyTorch launches first, to be subtracted
    through: str = ""  # the function to call, if it dispatches to the operator

    @property
    def inputs(self) -> Iterator[Tensor | Tensors]:
        """Input tensors; empty lists are skipped."""
        for argument in (*self.arguments, *(value for name, value in self.options if name != "out")):
            if isinstance(argument, Tensor) or (isinstance(argument, Tensors) and argument.shapes):
                yield argument


def matches(call: Call, signature: MemoryBound) -> bool:
    """Whether a capture of the call yields this signature.

    The launches of an operator over lists have rounded shares, so some bytes may differ. Older captures do not tell how
    element-wise kernels access their operands.
    """
    captured = _signature(call)
    if isinstance(captured, Elementwise) and isinstance(signature, Elementwise):
        tells_access = signature.strided_operands or signature.cast_operands
        captured = captured if tells_access else vectorised(captured)
    if captured == signature or not isinstance(captured, MemoryBound) or type(captured) is not type(signature):
        return captured == signature
    names = ("bytes_read", "bytes_written", "elements")
    largest_difference = max(abs(getattr(captured, name) - getattr(signature, name)) for name in names)
    equal = msgspec.structs.replace(captured, **{name: getattr(signature, name) for name in names}) == signature
    shared = isinstance(signature, Optimizer) or signature.fused_tensors > 1
    return equal and shared and largest_difference <= _ROUNDED


def _signature(call: Call) -> Signature:
    inputs = tuple(_expanded(tensor.operand, call.expanded) for tensor in call.inputs)
    operator = LaunchingOperator(call.operator, inputs, tuple(tensor.operand for tensor in call.outputs))
    signature = classify_launch(Descriptor("kernel", {"name": call.kernel}), operator, 1.0)
    if not isinstance(signature, Elementwise):
        return signature
    return msgspec.structs.replace(signature, **operands_by_layout(operator))


def _expanded(operand: Operand, times: int) -> Operand:
    if times == 1 or operand.dtype not in ("int64", "int32"):
        return operand
    return dataclasses.replace(
        operand, elements=operand.elements * times, shape=(*operand.shape, times), repeated=times
    )
