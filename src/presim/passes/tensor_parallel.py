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
import math
from collections.abc import Sequence

import msgspec

from presim.errors import InputError
from presim.graph.schema import Node, Operand, OperatorGraph, Origin, Parameter, Segment, Value
from presim.graph.sizes import Size, divide, lengthen, product, read
from presim.passes.collectives import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, WAIT

_COLUMNS, _ROWS = "colwise", "rowwise"
_WORDS = ("embedding_rowwise", "colwise_gather_output", "colwise_rep")  # styles of embedding and output layer
_PRODUCTS = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm")
_ATTENTION = ("aten::_scaled_dot_product_cudnn_attention", "aten::_scaled_dot_product_cudnn_attention_backward")
_REDUCTIONS = ("aten::sum", "aten::mean", "aten::amax", "aten::linalg_vector_norm")
_ADDITIONS = ("aten::add", "aten::add_")
_REDUCED = "c10d::allreduce_"  # of the model's own
_LOOKED_UP = ("aten::max", "aten::sum", "aten::index", "aten::index_put_")  # of a loss over split words
_HEADS = 1  # dimension of attention's operands


def apply(graph: OperatorGraph, degree: int, *, sequence: bool = False, vocabulary: bool = False) -> OperatorGraph:
    """The graph of one of ``degree`` ranks; itself for one.

    ``sequence``: what lies between split layers is split along the sequence, and S in sizes is a rank's part of it
    from then on. ``vocabulary``: embedding, output layer and loss are split by words.

    Raises:
        InputError: the model plans nothing to be split, a size does not divide, or an operator cannot be split.
    """
    if degree == 1:
        return graph
    if not any(style in (_COLUMNS, _ROWS) for style in graph.tensor_parallel.values()):
        raise InputError(f"{graph.model} says of no module how to split it (tp_plan); use a tensor degree of 1")
    if vocabulary and not any(style in _WORDS for style in graph.tensor_parallel.values()):
        raise InputError(
            f"{graph.model} does not say how to split its embedding and output layer (tp_plan); leave out sequence and "
            "vocabulary parallelism"
        )
    return _Split(graph, degree, sequence, vocabulary).graph()


@dataclasses.dataclass
class _Part:
    """A segment being rewritten."""

    segment: Segment
    nodes: list[Node]
    values: list[Value]
    ends: dict[int, int]  # value -> end of its split dimension, in numbers of the trace
    local: set[int] = dataclasses.field(default_factory=set)  # values split along the sequence
    gathered: dict[int, int] = dataclasses.field(default_factory=dict)  # such a value -> all of it
    partial: dict[int, Operand] = dataclasses.field(default_factory=dict)  # sums that are still to be reduced
    reduced: dict[int, int] = dataclasses.field(default_factory=dict)  # such a sum -> its part of the sequence

    @property
    def sums_itself(self) -> bool:
        """Whether the model was written for split words: it reduces its loss itself (Megatron)."""
        return any(node.operator == _REDUCED for node in self.segment.nodes) or self.segment.backward

    def segment_bytes(self, value: int) -> Size:
        """Bytes of a value as the graph has it, before it is split."""
        return self.values[value].bytes


class _Split:
    def __init__(self, graph: OperatorGraph, degree: int, sequence: bool, vocabulary: bool) -> None:
        self._graph, self._degree, self._vocabulary = graph, degree, vocabulary
        self._times = degree if sequence else 1  # how many parts a sequence has
        traced = graph.traced["batch"], graph.traced["sequence"]
        self._numbers = [tuple(read(size)(*traced) for size in shape) for shape in graph.shapes]
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
            if value.origin in (Origin.SEGMENT, Origin.CARRY):
                other = self._parts[value.segment]
                used = other.reduced.get(value.index, value.index)
                part.values[index] = msgspec.structs.replace(value, index=used)
                if used in other.local:
                    part.local.add(index)
        waiting: set[int] = set()
        for node in part.segment.nodes:
            if node.operator == _REDUCED:
                self._all_reduce(part, self._local(part, node.inputs[0], node, False), node.scope)
                continue
            node = self._with_sums(part, node, waiting)
            node = self._with_all(part, node, waiting)
            partial = not node.view and self._split(part, node)
            local = self._times > 1 and not node.view and self._localise(part, node, partial)
            self._wait(part, node, waiting)
            rewritten = self._rewrite(part, node, local)
            for place in node.written:
                part.gathered.pop(node.inputs[place].value, None)
            if self._adds_sums(part, node):
                part.nodes.append(rewritten)
                part.partial.pop(node.inputs[1].value)
                part.partial.pop(node.inputs[0].value)
                part.partial[node.outputs[0].value] = node.outputs[0]
            elif partial and self._is_late(part, node):
                part.nodes.append(rewritten)
                part.partial[node.outputs[0].value] = node.outputs[0]
            elif partial or self._is_sum_of_parts(node, local, part):
                self._reduce(part, rewritten, waiting)
            else:
                part.nodes.append(rewritten)
            self._loss(part, node, waiting)
        for sum_ in list(part.partial):
            self._scatter(part, part.partial.pop(sum_), part.segment.nodes[-1], waiting)
        for open_value in sorted(waiting):
            part.nodes.append(Node(WAIT, "", (Operand(open_value, 0, "", 0),), (), view=True))
        for index, value in enumerate(part.values):
            if value.again in part.reduced:
                part.values[index] = msgspec.structs.replace(value, again=part.reduced[value.again])
        for index, value in enumerate(part.values[: len(part.segment.values)]):
            if self._times > 1 and index not in part.local:
                part.values[index] = msgspec.structs.replace(value, bytes=lengthen(value.bytes, self._times))
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
            if self._vocabulary and style in _WORDS and fnmatch.fnmatchcase(module, pattern):
                return math.prod(parameter.shape)
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
        dims = [self._dim(part, operand, node.operator not in _PRODUCTS) for operand in node.inputs]
        if self._vocabulary and node.operator == "aten::embedding_dense_backward":
            self._mark(part, node.outputs[0], 0)
            return False
        if all(dim is None for dim in dims):
            return False
        if node.operator in _PRODUCTS:
            return self._product(part, node, dims)
        if node.operator == "aten::embedding":
            return True
        if node.operator == "aten::nll_loss_forward" or (part.sums_itself and node.operator in _LOOKED_UP):
            return False
        if node.operator == "aten::cat":
            self._joined(part, node, dims)
            return False
        if node.operator in _ATTENTION:
            for operand in node.outputs:
                if len(self._numbers[operand.shape]) == 4:
                    self._mark(part, operand, _HEADS)
            return False
        if node.operator in _REDUCTIONS:
            return self._reduction(part, node, dims[0])
        self._elementwise(part, node, dims)
        return False

    def _joined(self, part: _Part, node: Node, dims: Sequence[int | None]) -> None:
        """Tensors joined along the split dimension are split along it."""
        if any(dim is None for dim in dims) or len(set(dims)) > 1:
            raise self._impossible(part, node, "it joins tensors that are split with others, or along other dimensions")
        self._mark(part, node.outputs[0], dims[0] or 0)

    def _dim(self, part: _Part, operand: Operand, is_part: bool = False) -> int | None:
        """The split dimension of a tensor; ``is_part``: it may be a part of each row of what is split."""
        end = part.ends.get(operand.value, 0)
        if not end:
            return None
        shape, stride = self._numbers[operand.shape], self._numbers[operand.stride]
        found = [dim for dim, (size, step) in enumerate(zip(shape, stride)) if size > 1 and size * step == end]
        if not found and is_part and stride[-1:] == (1,) and end in stride and end % shape[-1] == 0:
            return len(shape) - 1  # a part of each row, as of gate and input that lie side by side
        return found[0] if found else None

    def _mark(self, part: _Part, operand: Operand, dim: int) -> None:
        part.ends[operand.value] = self._numbers[operand.shape][dim] * self._numbers[operand.stride][dim]

    def _product(self, part: _Part, node: Node, dims: Sequence[int | None]) -> bool:
        (a, b), out = dims[-2:] if len(dims) < 3 else dims[1:3], node.outputs[0]
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

    def _with_sums(self, part: _Part, node: Node, waiting: set[int]) -> Node:
        """The node after sums that it uses are reduced: not those that it adds to others."""
        touched = [one.value for one in node.inputs if one.value in part.partial]
        if node.view:
            return self._renamed(node, part.reduced)
        if touched and not self._adds_sums(part, node):
            for value in dict.fromkeys(touched):
                self._scatter(part, part.partial.pop(value), node, waiting)
        return self._renamed(node, part.reduced)

    def _adds_sums(self, part: _Part, node: Node) -> bool:
        """Whether a node adds sums that are reduced afterwards, together."""
        values = {one.value for one in node.inputs}
        return node.operator in _ADDITIONS and len(values) == 2 and all(value in part.partial for value in values)

    def _with_all(self, part: _Part, node: Node, waiting: set[int]) -> Node:
        """The node with parts of the sequence gathered, where it multiplies them with something that is split."""
        gathers = node.operator in _PRODUCTS and any(one.value in part.ends for one in node.inputs)
        gathers |= self._vocabulary and node.operator == "aten::embedding_dense_backward"
        if not gathers or not any(one.value in part.local for one in node.inputs):
            return node
        for operand in node.inputs:
            if operand.value in part.local and operand.value not in part.gathered:
                self._wait(part, msgspec.structs.replace(node, inputs=(operand,)), waiting)
                whole = lengthen(part.segment_bytes(operand.value), self._times)
                part.values.append(Value(Origin.OWN, whole))
                new = len(part.values) - 1
                part.gathered[operand.value] = new
                given = self._local(part, operand, node, True)
                made = self._local(part, msgspec.structs.replace(operand, value=new), node, False)
                attributes: dict[str, int | str | list[int]] = {"group": "tensor"}
                part.nodes.append(Node(ALL_GATHER, node.scope, (given,), (made,), attributes=attributes))
                waiting.add(new)
        return self._renamed(node, part.gathered)

    def _localise(self, part: _Part, node: Node, partial: bool) -> bool:
        """Whether a node works on a part of the sequence; its outputs are parts as well, where they have one."""
        touches = any(one.value in part.local for one in node.inputs)
        starts = node.operator == "aten::embedding" and not partial
        if not (touches or starts):
            return False
        part.local |= {one.value for one in node.outputs if self._has_sequence(one)}
        return True

    def _has_sequence(self, operand: Operand) -> bool:
        return any(isinstance(size, str) and "S" in size for size in self._graph.shapes[operand.shape])

    def _is_late(self, part: _Part, node: Node) -> bool:
        """Whether a sum is reduced later, when others have been added: of activations, along the sequence."""
        return self._times > 1 and self._has_sequence(node.outputs[0])

    def _is_sum_of_parts(self, node: Node, local: bool, part: _Part) -> bool:
        """Whether a result sums over the sequence, of which each rank has a part."""
        return bool(local and node.outputs and not node.written and not self._has_sequence(node.outputs[0]))

    def _scatter(self, part: _Part, operand: Operand, node: Node, waiting: set[int]) -> None:
        """Sums are reduced, and each rank keeps its part of the sequence."""
        part.values.append(Value(Origin.OWN, part.segment_bytes(operand.value)))
        new = len(part.values) - 1
        part.local.add(new)
        part.reduced[operand.value] = new
        whole = self._local(part, operand, node, False)
        own = self._local(part, msgspec.structs.replace(operand, value=new), node, True)
        attributes: dict[str, int | str | list[int]] = {"group": "tensor"}
        part.nodes.append(Node(REDUCE_SCATTER, node.scope, (whole,), (own,), attributes=attributes))
        waiting.add(new)

    def _renamed(self, node: Node, names: dict[int, int]) -> Node:
        if not any(one.value in names for one in (*node.inputs, *node.outputs)):
            return node

        def new(operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
            return tuple(msgspec.structs.replace(one, value=names.get(one.value, one.value)) for one in operands)

        return msgspec.structs.replace(node, inputs=new(node.inputs), outputs=new(node.outputs))

    def _loss(self, part: _Part, node: Node, waiting: set[int]) -> None:
        """A loss over split words: the largest logit and the sum of their exponentials, then the label's logit."""
        times = {"aten::_log_softmax": 2, "aten::nll_loss_forward": 1}.get(node.operator, 0)
        if not (times and self._vocabulary and node.inputs[0].value in part.ends):
            return
        rows = self._graph.shapes[node.inputs[0].shape][0]
        for _ in range(times):
            size = lengthen(product([4, rows]), self._times)
            part.values.append(Value(Origin.OWN, size))
            shape = self._index([lengthen(rows, self._times)])
            operand = Operand(len(part.values) - 1, shape, "float32", self._index([1]))
            self._all_reduce(part, operand, node.scope)

    def _all_reduce(self, part: _Part, operand: Operand, scope: str) -> None:
        """In place, and waited for at once."""
        part.nodes.append(Node(ALL_REDUCE, scope, (operand,), (), attributes={"group": "tensor"}))
        part.nodes.append(Node(WAIT, scope, (operand,), (), view=True))

    def _rewrite(self, part: _Part, node: Node, local: bool = False) -> Node:
        def new(operand: Operand) -> Operand:
            return self._local(part, operand, node, local or operand.value in part.local)

        return msgspec.structs.replace(node, inputs=tuple(map(new, node.inputs)), outputs=tuple(map(new, node.outputs)))

    def _local(self, part: _Part, operand: Operand, node: Node, is_part: bool) -> Operand:
        """A tensor as one rank has it; ``is_part``: of the sequence."""
        dim, end = self._dim(part, operand, node.operator not in _PRODUCTS), part.ends.get(operand.value, 0)
        if dim is None and (is_part or self._times == 1):
            return operand
        shape, stride = list(self._graph.shapes[operand.shape]), list(self._graph.shapes[operand.stride])
        if not is_part and self._times > 1:
            shape = [lengthen(size, self._times) for size in shape]
            stride = [lengthen(size, self._times) for size in stride]
        if dim is None:
            return msgspec.structs.replace(operand, shape=self._index(shape), stride=self._index(stride))
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
        part.values.append(Value(Origin.OWN, lengthen(part.values[out.value].bytes, self._times)))
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
