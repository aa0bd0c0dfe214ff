"""A call of one operator: its tensors by type, shape and kind of values, and the signature it is captured as."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from presim.capture.reading.classify import classify_launch
from presim.capture.reading.log import Descriptor
from presim.capture.reading.operators import Operand, Operator
from presim.trace.signatures import MemoryBound, Optimizer, Signature

FLOATS = ("bfloat16", "float16", "float32")
_ROUNDED = 16  # bytes: half of one in each of the tensors and counters of an element, of what launches share


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A contiguous tensor on the GPU.

    ``values``: normal; positive; near one (what is multiplied by it again and again stays finite); below N for indices,
    drawn evenly, which is what random tokens are, while those of text repeat more often and are found in caches.
    """

    dtype: str
    shape: tuple[int, ...]
    values: str = "normal"
    below: int = 2

    @property
    def operand(self) -> Operand:
        """As the reading of a capture has it."""
        count = 1
        for size in self.shape:
            count *= size
        return Operand(self.dtype, count, True, self.shape)


@dataclasses.dataclass(frozen=True)
class Tensors:
    """A list of contiguous tensors on the GPU, by their shapes."""

    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    values: str = "normal"
    below: int = 2

    @property
    def members(self) -> tuple[Tensor, ...]:
        """One by one."""
        return tuple(Tensor(self.dtype, shape, self.values, self.below) for shape in self.shapes)

    @property
    def operand(self) -> Operand:
        """As the reading of a capture has it: taken together."""
        elements = sum(member.operand.elements for member in self.members)
        return Operand(self.dtype, elements, True, tensors=len(self.shapes))


Scalar: TypeAlias = "bool | int | float | str | None"
Argument: TypeAlias = "Tensor | Tensors | Scalar | tuple[Scalar, ...]"


@dataclasses.dataclass(frozen=True)
class Call:
    """``operator(*arguments, **options)``, with what it writes; all is of the kernel that is asked for."""

    operator: str  # as a capture names it: aten::add
    arguments: tuple[Argument, ...]
    outputs: tuple[Tensor | Tensors, ...] = ()
    options: tuple[tuple[str, Argument], ...] = ()
    kernel: str = ""  # where an operator launches several, part of the name of the one that runs here
    expanded: int = 1  # of a gather: elements of a row for which the operator sees the index once each
    first: Call | None = None  # a kernel's worth that PyTorch launches in front by itself, to be taken off
    through: str = ""  # what is called, where that hands its work on to the operator

    @property
    def inputs(self) -> Iterator[Tensor | Tensors]:
        """The tensors that it is given; empty lists are none."""
        for argument in (*self.arguments, *(value for name, value in self.options if name != "out")):
            if isinstance(argument, Tensor) or (isinstance(argument, Tensors) and argument.shapes):
                yield argument


def gives(call: Call, signature: MemoryBound) -> bool:
    """Whether a capture of the call would have this signature.

    Of an operator over lists that takes several launches each has a rounded share: there some bytes may differ.
    """
    made = _signature(call)
    if made == signature or not isinstance(made, MemoryBound) or type(made) is not type(signature):
        return made == signature
    names = ("bytes_read", "bytes_written", "elements")
    apart = max(abs(getattr(made, name) - getattr(signature, name)) for name in names)
    equal = msgspec.structs.replace(made, **{name: getattr(signature, name) for name in names}) == signature
    shared = isinstance(signature, Optimizer) or signature.fused_tensors > 1
    return equal and shared and apart <= _ROUNDED


def _signature(call: Call) -> Signature:
    inputs = tuple(_seen(each.operand, call.expanded) for each in call.inputs)
    operator = Operator(call.operator, inputs, tuple(each.operand for each in call.outputs))
    return classify_launch(Descriptor("kernel", {"name": call.kernel}), operator, 1.0)


def _seen(operand: Operand, times: int) -> Operand:
    if times == 1 or operand.dtype not in ("int64", "int32"):
        return operand
    return dataclasses.replace(
        operand, elements=operand.elements * times, shape=(*operand.shape, times), repeated=times
    )
