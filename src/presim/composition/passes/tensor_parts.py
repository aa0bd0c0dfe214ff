"""Segments during the tensor-parallel rewrite, and tensors as one rank has them.

A split storage is identified by the **end** of the split dimension in memory: stride times size, in bytes. Every view
of the storage, whatever its shape, is split along the dimension that ends there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec

from presim.composition.graph.graph_schema import Node, Operand, OperatorGraph, Segment, Value, ValueOrigin
from presim.composition.graph.sizes import Size, divide, lengthen, read
from presim.composition.passes.collective_names import ALL_REDUCE, WAIT
from presim.errors import InputError
from presim.trace.dtypes import dtype_bytes

PRODUCTS = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm")


@dataclasses.dataclass
class Part:
    """A segment being rewritten."""

    segment: Segment
    nodes: list[Node]
    values: list[Value]
    split_ends: dict[int, int]  # value -> end of its split dimension, in bytes at traced sizes
    local: set[int] = dataclasses.field(default_factory=set)  # values split along the sequence
    gathered: dict[int, int] = dataclasses.field(default_factory=dict)  # local value -> gathered value
    # local value -> gathered value, at its first gather
    first_gathered: dict[int, int] = dataclasses.field(default_factory=dict)
    partial: dict[int, Operand] = dataclasses.field(default_factory=dict)  # partial sums that are not yet reduced
    reduced: dict[int, int] = dataclasses.field(default_factory=dict)  # partial sum -> its reduced part of the sequence
    waiting: set[int] = dataclasses.field(default_factory=set)  # values with communication in progress

    def segment_bytes(self, value: int) -> Size:
        """Bytes of a value before the split."""
        return self.values[value].bytes

    def all_reduce(self, operand: Operand, scope: str) -> None:
        """All-reduce in place; the first user waits for it."""
        self.nodes.append(Node(ALL_REDUCE, scope, (operand,), (), attributes={"group": "tensor"}))
        self.waiting.add(operand.value)

    def wait(self, operands: Sequence[Operand], scope: str) -> None:
        """Wait for communication in progress on tensors that are used now."""
        for operand in operands:
            if operand.value in self.waiting:
                self.waiting.discard(operand.value)
                self.nodes.append(Node(WAIT, scope, (operand,), (), view=True))

    def add_storage(self, size: Size) -> int:
        """Add a storage; returns its number."""
        self.values.append(Value(ValueOrigin.OWN, size))
        return len(self.values) - 1


class Tensors:
    """Shapes and strides as one of ``degree`` ranks has them."""

    def __init__(self, graph: OperatorGraph, degree: int, times: int) -> None:
        """``times``: number of parts of a sequence."""
        self.graph, self.degree, self.times = graph, degree, times
        traced = graph.traced["batch"], graph.traced["sequence"]
        self.numbers = [tuple(read(size)(*traced) for size in shape) for shape in graph.shapes]
        self.shapes: dict[tuple[Size, ...], int] = {shape: index for index, shape in enumerate(graph.shapes)}

    def split_dim(self, part: Part, operand: Operand, may_be_row_part: bool = False) -> int | None:
        """The split dimension of a tensor; ``may_be_row_part``: it may be a part of each row of a split tensor."""
        end = self.split_end(part, operand)
        if not end:
            return None
        shape, stride = self.numbers[operand.shape], self.numbers[operand.stride]
        split_dims = [dim for dim, (size, step) in enumerate(zip(shape, stride)) if size > 1 and size * step == end]
        if not split_dims and may_be_row_part and stride[-1:] == (1,) and end in stride and end % shape[-1] == 0:
            # a part of each row, e.g. gate and input, or queries and keys, stored side by side: its outermost dimension
            return max((step, dim) for dim, (size, step) in enumerate(zip(shape, stride)) if size > 1 and step < end)[1]
        return split_dims[0] if split_dims else None

    def split_end(self, part: Part, operand: Operand) -> int:
        """The end in elements of the tensor's type, which may differ from its storage's type (complex views)."""
        return part.split_ends.get(operand.value, 0) // dtype_bytes(operand.dtype) if operand.dtype else 0

    def mark_split(self, part: Part, operand: Operand, dim: int) -> None:
        """Mark a tensor's storage as split along a dimension."""
        end = self.numbers[operand.shape][dim] * self.numbers[operand.stride][dim]
        part.split_ends[operand.value] = end * dtype_bytes(operand.dtype)

    def local_operand(self, part: Part, operand: Operand, node: Node, is_sequence_part: bool) -> Operand:
        """A tensor as one rank has it; ``is_sequence_part``: as a part of the sequence."""
        dim, end = self.split_dim(part, operand, node.operator not in PRODUCTS), self.split_end(part, operand)
        if dim is None and (is_sequence_part or self.times == 1):
            return operand
        shape, stride = list(self.graph.shapes[operand.shape]), list(self.graph.shapes[operand.stride])
        if not is_sequence_part and self.times > 1:
            shape = [lengthen(size, self.times) for size in shape]
            stride = [lengthen(size, self.times) for size in stride]
        if dim is None:
            return msgspec.structs.replace(operand, shape=self.index(shape), stride=self.index(stride))
        location = f"dimension {dim} of {node.operator} in {part.segment.name}{node.scope}"
        shape[dim] = self.divide(shape[dim], location)
        for other_dim, step in enumerate(self.numbers[operand.stride]):
            if step and step % end == 0:
                stride[other_dim] = self.divide(stride[other_dim], location)
        return msgspec.structs.replace(operand, shape=self.index(shape), stride=self.index(stride))

    def index(self, shape: Sequence[Size]) -> int:
        """The number of a shape; adds new shapes."""
        return self.shapes.setdefault(tuple(shape), len(self.shapes))

    def divide(self, size: Size, location: str) -> Size:
        """One rank's part of a size.

        Raises:
            InputError: the size does not divide; lists degrees that do.
        """
        quotient = divide(size, self.degree)
        if quotient is None:
            divisors = [divisor for divisor in range(1, 4 * self.degree) if divide(size, divisor) is not None]
            nearest = sorted(sorted(divisors, key=lambda divisor: abs(divisor - self.degree))[:4])
            raise InputError(
                f"tensor = {self.degree} does not divide {size} ({location}); degrees that do: "
                f"{', '.join(map(str, nearest))}"
            )
        return quotient

    def has_sequence(self, operand: Operand) -> bool:
        """Whether a dimension of a tensor grows with the sequence."""
        return any(isinstance(size, str) and "S" in size for size in self.graph.shapes[operand.shape])
