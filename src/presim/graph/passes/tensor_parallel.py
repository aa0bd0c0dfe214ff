"""Tensor parallelism: matrices are split by columns or rows between ranks, and what follows from it.

Which matrices, the model says itself (Hugging Face's ``tp_plan``); the rest is propagated through the operators. A
storage that is split is known by the **end** of the split dimension in memory, stride x size: every view of it,
whatever its shape, is split along the dimension that ends there. A product over a split dimension gives partial sums,
which are all-reduced there and then, as DTensor's ``ColwiseParallel`` and ``RowwiseParallel`` do for each linear
layer.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Sequence

import msgspec

from presim.errors import InputError
from presim.graph.communication import ALL_REDUCE, WAIT
from presim.graph.schema import Node, Operand, OperatorGraph, Origin, Parameter, Segment, Value
from presim.graph.sizes import Size, divide, read

_COLUMNS, _ROWS = "colwise", "rowwise"
_PRODUCTS = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm")
_ATTENTION = ("aten::_scaled_dot_product_cudnn_attention", "aten::_scaled_dot_product_cudnn_attention_backward")
_REDUCTIONS = ("aten::sum", "aten::mean", "aten::amax", "aten::linalg_vector_norm")
_HEADS = 1  # dimension of attention's operands


def apply(graph: OperatorGraph, degree: int) -> OperatorGraph:
    """The graph of one of ``degree`` ranks; itself for one.

    Raises:
        InputError: the model plans nothing to be split, a size does not divide, or an operator cannot be split.
    """
    if degree == 1:
        return graph
    if not any(style in (_COLUMNS, _ROWS) for style in graph.tensor_parallel.values()):
        raise InputError(f"{graph.model} says of no module how to split it (tp_plan); use a tensor degree of 1")
    return _Split(graph, degree).graph()


@dataclasses.dataclass
class _Part:
    """A segment being rewritten."""

    segment: Segment
    nodes: list[Node]
    values: list[Value]
    ends: dict[int, int]  # value -> end of its split dimension, in numbers of the trace


class _Split:
    def __init__(self, graph: OperatorGraph, degree: int) -> None:
        self._graph, self._degree = graph, degree
        batch, sequence = graph.traced["batch"], graph.traced["sequence"]
        self._numbers = [tuple(read(size)(batch, sequence) for size in shape) for shape in graph.shapes]
        self._shapes: dict[tuple[Size, ...], int] = {shape: index for index, shape in enumerate(graph.shapes)}
        self._parts: list[_Part] = []

    def graph(self) -> OperatorGraph:
        graph = self._graph
        for segment in graph.segments:
            self._parts.append(_Part(segment, [], list(segment.values), {}))
            self._run(self._parts[-1])
        segments = tuple(
            msgspec.structs.replace(part.segment, nodes=tuple(part.nodes), values=tuple(part.values))
            for part in self._parts
        )
        parameters = tuple(self._parameter(parameter) for parameter in graph.parameters)
        return msgspec.structs.replace(graph, segments=segments, shapes=tuple(self._shapes), parameters=parameters)

    def _run(self, part: _Part) -> None:
        for index, value in enumerate(part.segment.values):
            end = self._end_from_outside(part.segment, value)
            if end:
                part.ends[index] = end
        waiting: set[int] = set()
        for node in part.segment.nodes:
            partial = not node.view and self._split(part, node)
            self._wait(part, node, waiting)
            rewritten = self._rewrite(part, node)
            if partial:
                self._reduce(part, rewritten, waiting)
            else:
                part.nodes.append(rewritten)
        for open_value in sorted(waiting):
            part.nodes.append(Node(WAIT, "", (Operand(open_value, 0, "", 0),), (), view=True))
        for index, end in part.ends.items():
            value = part.values[index]
            if end:
                part.values[index] = msgspec.structs.replace(value, bytes=self._divide(value.bytes, "a storage"))

    def _end_from_outside(self, segment: Segment, value: Value) -> int:
        if value.origin is Origin.PARAMETER:
            return self._end_of_parameter(segment, value.name)
        if value.origin in (Origin.SEGMENT, Origin.CARRY):
            return self._parts[value.segment].ends.get(value.index, 0)
        return 0

    def _end_of_parameter(self, segment: Segment, name: str) -> int:
        parameter = next((one for one in self._graph.parameters if one.name == name and self._owns(one, segment)), None)
        return self._end_of(parameter) if parameter else 0

    def _owns(self, parameter: Parameter, segment: Segment) -> bool:
        if parameter.segment < 0:
            return True
        home = self._graph.segments[parameter.segment]
        return home is segment or (segment.twin >= 0 and self._graph.segments[segment.twin] is home)

    def _end_of(self, parameter: Parameter) -> int:
        """Columns are the first dimension of a weight as torch stores it, rows the second; biases go with columns."""
        whole = self._graph.segments[parameter.segment].name if parameter.segment >= 0 else ""
        module, _, kind = f"{whole}{parameter.name}".rpartition(".")
        for pattern, style in self._graph.tensor_parallel.items():
            if style in (_COLUMNS, _ROWS) and fnmatch.fnmatchcase(module, pattern):
                elements = 1
                for size in parameter.shape:
                    elements *= size
                if style == _COLUMNS:
                    return elements
                return parameter.shape[-1] if kind == "weight" else 0
        return 0

    def _split(self, part: _Part, node: Node) -> bool:
        """Decide what of a node's outputs is split; whether they are partial sums."""
        dims = [self._dim(part, operand) for operand in node.inputs]
        if all(dim is None for dim in dims):
            return False
        if node.operator in _PRODUCTS:
            return self._product(part, node, dims)
        if node.operator in _ATTENTION:
            for operand in node.outputs:
                if len(self._numbers[operand.shape]) == 4:
                    self._mark(part, operand, _HEADS)
            return False
        if node.operator in _REDUCTIONS:
            return self._reduction(part, node, dims[0])
        self._elementwise(part, node, dims)
        return False

    def _dim(self, part: _Part, operand: Operand) -> int | None:
        """The split dimension of a tensor."""
        end = part.ends.get(operand.value, 0)
        if not end:
            return None
        shape, stride = self._numbers[operand.shape], self._numbers[operand.stride]
        found = [dim for dim, (size, step) in enumerate(zip(shape, stride)) if size > 1 and size * step == end]
        return found[0] if found else None

    def _mark(self, part: _Part, operand: Operand, dim: int) -> None:
        part.ends[operand.value] = self._numbers[operand.shape][dim] * self._numbers[operand.stride][dim]

    def _product(self, part: _Part, node: Node, dims: Sequence[int | None]) -> bool:
        (a, b), out = dims[-2:], node.outputs[0]
        rank = len(self._numbers[out.shape])
        inner_a, inner_b = a == rank - 1, b == rank - 2
        if inner_a != inner_b:
            raise self._impossible(part, node, "one factor is split along the sum and the other is not")
        if inner_a:
            return True
        kept = [dim for dim in (a, b) if dim is not None]
        if len(set(kept)) > 1:
            raise self._impossible(part, node, "both factors are split, along different dimensions")
        self._mark(part, out, kept[0])
        return False

    def _reduction(self, part: _Part, node: Node, dim: int | None) -> bool:
        source, out = node.inputs[0], node.outputs[0]
        rank = len(self._numbers[source.shape])
        given = node.attributes.get("dim", list(range(rank)))
        summed = {one % rank for one in (given if isinstance(given, list) else [int(given)])} if rank else set()
        if dim is None:
            return False
        if dim in summed or not summed:
            return True
        place = dim if node.attributes.get("keepdim") else dim - sum(one < dim for one in summed)
        self._mark(part, out, place)
        return False

    def _elementwise(self, part: _Part, node: Node, dims: Sequence[int | None]) -> None:
        operand, dim = next((one, dim) for one, dim in zip(node.inputs, dims) if dim is not None)
        from_right = len(self._numbers[operand.shape]) - dim
        size = self._numbers[operand.shape][dim]
        for out in node.outputs:
            shape = self._numbers[out.shape]
            if len(shape) < from_right or shape[-from_right] != size:
                raise self._impossible(part, node, "its result has another size than what is split")
            self._mark(part, out, len(shape) - from_right)
        for other, other_dim in zip(node.inputs, dims):
            shape = self._numbers[other.shape]
            if other_dim is None and len(shape) >= from_right and shape[-from_right] == size:
                raise self._impossible(part, node, "it joins a tensor that is split with one that is not")

    def _impossible(self, part: _Part, node: Node, why: str) -> InputError:
        where = f"{part.segment.name}{node.scope}" if node.scope.startswith(".") else node.scope
        return InputError(
            f"{self._graph.model} cannot be split by tensor parallelism: at {node.operator} of {where or 'the model'}, "
            f"{why}; use a tensor degree of 1"
        )

    def _rewrite(self, part: _Part, node: Node) -> Node:
        return msgspec.structs.replace(
            node,
            inputs=tuple(self._local(part, operand, node) for operand in node.inputs),
            outputs=tuple(self._local(part, operand, node) for operand in node.outputs),
        )

    def _local(self, part: _Part, operand: Operand, node: Node) -> Operand:
        dim, end = self._dim(part, operand), part.ends.get(operand.value, 0)
        if dim is None:
            return operand
        shape, stride = list(self._graph.shapes[operand.shape]), list(self._graph.shapes[operand.stride])
        where = f"dimension {dim} of {node.operator} in {part.segment.name}{node.scope}"
        shape[dim] = self._divide(shape[dim], where)
        for place, step in enumerate(self._numbers[operand.stride]):
            if step and step % end == 0:
                stride[place] = self._divide(stride[place], where)
        return msgspec.structs.replace(operand, shape=self._index(shape), stride=self._index(stride))

    def _index(self, shape: Sequence[Size]) -> int:
        return self._shapes.setdefault(tuple(shape), len(self._shapes))

    def _divide(self, size: Size, where: str) -> Size:
        quotient = divide(size, self._degree)
        if quotient is None:
            near = [d for d in range(1, 4 * self._degree) if divide(size, d) is not None]
            nearest = sorted(sorted(near, key=lambda d: abs(d - self._degree))[:4])
            raise InputError(
                f"tensor = {self._degree} does not divide {size} ({where}); degrees that do: "
                f"{', '.join(map(str, nearest))}"
            )
        return quotient

    def _reduce(self, part: _Part, node: Node, waiting: set[int]) -> None:
        """Partial sums go to a storage of their own, are copied, and the copy is reduced (functional collectives)."""
        out = node.outputs[0]
        part.values.append(Value(Origin.OWN, part.values[out.value].bytes))
        partial = msgspec.structs.replace(out, value=len(part.values) - 1)
        part.nodes.append(msgspec.structs.replace(node, outputs=(partial,)))
        part.nodes.append(Node("aten::clone", node.scope, (partial,), (out,), attributes={"plain": 1}))
        part.nodes.append(Node(ALL_REDUCE, node.scope, (out,), (), attributes={"group": "tensor"}))
        waiting.add(out.value)

    def _wait(self, part: _Part, node: Node, waiting: set[int]) -> None:
        """The first work that uses what is being reduced waits for it."""
        if node.view:
            return
        for operand in node.inputs:
            if operand.value in waiting:
                waiting.discard(operand.value)
                part.nodes.append(Node(WAIT, node.scope, (operand,), (), view=True))

    def _parameter(self, parameter: Parameter) -> Parameter:
        end = self._end_of(parameter)
        if not end:
            return parameter
        steps, step = [], 1
        for size in reversed(parameter.shape):
            steps.append(step)
            step *= size
        shape = list(parameter.shape)
        for dim, (size, step) in enumerate(zip(parameter.shape, reversed(steps))):
            if size * step == end:
                shape[dim] = int(self._divide(size, parameter.name))
        return msgspec.structs.replace(parameter, shape=tuple(shape))
