"""A segment whose experts are shared out among ranks: what all ways to exchange tokens have in common."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence

import msgspec

from presim.graph.schema import Node, Operand, OperatorGraph, Origin, Segment, Value
from presim.graph.sizes import Size, divide, product, read
from presim.passes.collectives import WAIT
from presim.passes.expert_parameters import GROUPED
from presim.passes.expert_routing import Load, dealt, group_sizes, scaled
from presim.trace.dtypes import dtype_bytes

GROUP = "experts"
INDEX, PUT = "aten::index", "aten::index_put"


@dataclasses.dataclass(frozen=True)
class Place:
    """The nodes where tokens enter and leave one layer's experts, by number."""

    scope: str
    maker: int  # makes the rows of tokens
    first: int  # the first node that reads them
    last: int  # the last product of tokens
    tokens_in: Operand
    made: Operand
    offsets: Operand  # end index of each expert's tokens


class Shapes:
    """The graph's shapes, plus new ones."""

    def __init__(self, shapes: tuple[tuple[Size, ...], ...]) -> None:
        self.known = list(shapes)
        self._indices = {shape: index for index, shape in enumerate(shapes)}

    def index(self, shape: tuple[Size, ...]) -> int:
        """Its index."""
        found = self._indices.setdefault(shape, len(self.known))
        if found == len(self.known):
            self.known.append(shape)
        return found


@dataclasses.dataclass(frozen=True)
class Task:
    """What the segments of a graph share. ``batch``, ``sequence``: sizes of a micro-batch on one rank."""

    graph: OperatorGraph
    degree: int
    load: Load
    shapes: Shapes
    batch: int
    sequence: int


class ExpertSegment(abc.ABC):
    """A segment being rewritten for one rank's experts."""

    def __init__(self, task: Task, segment: Segment, names: set[str], before: Sequence[ExpertSegment]) -> None:
        """``names``: parameters of experts in this segment; ``before``: the segments before it, rewritten."""
        self._segment, self._degree, self._load, self._shapes = segment, task.degree, task.load, task.shapes
        self._task, self._before = task, before
        self._values, self._nodes = list(segment.values), list[Node]()
        self.renamed: dict[int, int] = {}  # value -> tensor that replaces it after an exchange
        self.rows: dict[int, tuple[Size, Size]] = {}  # value -> its rows in the graph, and on this rank
        self.kept: dict[tuple[str, str], Operand] = {}  # (scope, what) -> tensor kept for the backward pass
        self._offsets: set[int] = set()
        self._experts = {
            index for index, value in enumerate(segment.values)
            if value.origin is Origin.PARAMETER and value.name in names
        } | {index for name, index in segment.gradients.items() if name in names}  # fmt: skip
        # gradients of biases are summed into zeros
        self._experts |= {
            node.inputs[0].value
            for node in segment.nodes
            if node.operator == PUT and node.outputs[0].value in self._experts
        }
        if self._experts:
            self._prepare()
            found = dict.fromkeys(node.scope for node in segment.nodes if node.operator == GROUPED)
            places = [self._place(scope) for scope in found]
            self._offsets = {one.offsets.value for one in places}
            self._rewrite(places)
        else:
            self._nodes = list(segment.nodes)

    @abc.abstractmethod
    def _rewrite(self, places: Sequence[Place]) -> None:
        """Fill the list of nodes."""

    def segment(self) -> Segment:
        """The segment with its exchanges. What it no longer reads of its forward pass is not kept."""
        used = {operand.value for node in self._nodes for operand in (*node.inputs, *node.outputs)}
        values = tuple(
            value if index in used or not self._experts or value.origin is not Origin.SEGMENT else Value(Origin.OWN, 0)
            for index, value in enumerate(self._values)
        )
        return msgspec.structs.replace(self._segment, values=values, nodes=tuple(self._nodes))

    def _prepare(self) -> None:
        """Parameters have the rank's own experts; saved values are what replaced them in the forward pass."""
        for index in self._experts:
            value = self._values[index]
            self._values[index] = msgspec.structs.replace(value, bytes=divide(value.bytes, self._degree) or 0)
        for index, value in enumerate(self._values):
            if value.origin is not Origin.SEGMENT:
                continue
            other = self._before[value.segment]
            there = other.renamed.get(value.index, value.index)
            self._values[index] = msgspec.structs.replace(value, index=there)
            if there in other.rows:
                self._set_rows(index, *other.rows[there])

    def _place(self, scope: str) -> Place:
        nodes = self._segment.nodes
        own = [number for number, node in enumerate(nodes) if node.operator == GROUPED and node.scope == scope]
        tokens = [number for number in own if len(self._task.graph.shapes[nodes[number].outputs[0].shape]) == 2]
        tokens_in = nodes[tokens[0]].inputs[0]
        maker = max(number for number in range(own[0]) if _makes(nodes[number], tokens_in.value))
        first = next(number for number in range(maker + 1, len(nodes))
                     if any(one.value == tokens_in.value for one in nodes[number].inputs))  # fmt: skip
        made, offsets, last = nodes[tokens[-1]].outputs[0], nodes[own[0]].inputs[2], tokens[-1]
        while last + 1 < len(nodes) and _adds_to(nodes[last + 1], made.value):
            last += 1  # biases
        return Place(scope, maker, first, last, tokens_in, made, offsets)

    def _looks_up(self, node: Node) -> bool:
        """Whether a node reads a bias of each token's expert, or sums its gradients."""
        return node.operator in (INDEX, PUT) and node.inputs[0].value in self._experts

    def _own(self, node: Node) -> Node:
        """The node applied to the rank's own experts and the tokens it received."""
        if self._looks_up(node):
            ids = msgspec.structs.replace(node.inputs[1], value=self._own_ids(node))
            node = msgspec.structs.replace(node, inputs=(node.inputs[0], ids, *node.inputs[2:]))
        attributes = node.attributes
        if node.operator == GROUPED and self._load.groups:
            attributes = {**attributes, "sizes": self._group_sizes(node)}
        inputs, outputs = tuple(map(self._renewed, node.inputs)), tuple(map(self._renewed, node.outputs))
        return msgspec.structs.replace(node, inputs=inputs, outputs=outputs, attributes=attributes)

    def _renewed(self, operand: Operand) -> Operand:
        value = self.renamed.get(operand.value, operand.value)
        shape = self._shape(operand)
        if operand.value in self._experts or operand.value in self._offsets:
            shape = (divide(shape[0], self._degree) or 0, *shape[1:])
        elif value in self.rows:
            old, new = self.rows[value]
            shape = tuple(new if size == old else size for size in shape)
        return msgspec.structs.replace(operand, value=value, shape=self._index(*shape))

    def _group_sizes(self, node: Node) -> list[int]:
        """Rows of each of the rank's own experts in a grouped product, where they differ."""
        left, right, ends = (self._shape(self._renewed(one)) for one in node.inputs[:3])
        rows = right[0] if len(right) == 2 else left[0]
        return group_sizes(self._number(rows), self._load, self._number(ends[0]))

    def _own_ids(self, node: Node) -> int:
        """Each copy's expert among the rank's own, for biases; made once a layer, and kept for the backward pass."""
        scope = node.scope
        if (scope, "ids") not in self.kept and not self._segment.backward:
            counts, rows = self.kept[scope, "counts"], self._received(self._shape(node.inputs[1])[0])
            own = self._made("aten::arange", scope, (), "int64", *self._shape(counts))
            self._save(scope, "ids", self._made("aten::repeat_interleave", scope, (own, counts), "int64", rows))
        return self._saved(scope, "ids").value

    def _end_groups(self, place: Place, counts: Operand) -> None:
        """Where the rows of each of the rank's own experts end, from their numbers, which are kept."""
        self._save(place.scope, "counts", counts)
        offsets = msgspec.structs.replace(place.offsets, shape=self._index(*self._shape(counts)))
        size = divide(self._values[offsets.value].bytes, self._degree) or 0
        self._values[offsets.value] = msgspec.structs.replace(self._values[offsets.value], bytes=size)
        self._add("aten::cumsum", place.scope, (counts,), offsets, dim=0)

    def _save(self, scope: str, what: str, operand: Operand) -> Operand:
        self.kept[scope, what] = operand
        return operand

    def _saved(self, scope: str, what: str) -> Operand:
        """A tensor that the forward pass kept."""
        if (scope, what) not in self.kept:
            twin = self._segment.twin
            there = self._before[twin].kept[scope, what]
            same = [
                number
                for number, value in enumerate(self._values)
                if value.origin is Origin.SEGMENT and (value.segment, value.index) == (twin, there.value)
            ]
            index = same[0] if same else len(self._values)
            if index == len(self._values):
                size = self._before[twin]._values[there.value].bytes
                self._values.append(Value(Origin.SEGMENT, size, segment=twin, index=there.value))
            self.kept[scope, what] = msgspec.structs.replace(there, value=index)
        return self.kept[scope, what]

    # rows of tensors

    def _received(self, rows: Size) -> Size:
        """Rows of the fullest rank, of so many under even routing."""
        return rows if self._load.received == 1 else scaled(self._number(rows), self._load.received)

    def _sent(self, rows: Size) -> Size:
        """Rows that a rank sends, of so many without a capacity."""
        return rows if self._load.sent == 1 else scaled(self._number(rows), self._load.sent)

    def _resize(self, nodes: Sequence[Node], old: Size, new: Size) -> None:
        """Give other rows to the tensors of numbers that these nodes make."""
        for operand in [one for node in nodes if not node.view for one in node.outputs]:
            is_own = self._values[operand.value].origin is Origin.OWN and operand.value not in self._experts
            if new != old and is_own and old in self._shape(operand) and not operand.dtype.startswith("int"):
                self._set_rows(operand.value, old, new)

    def _replace(self, old: Operand, new: Operand) -> None:
        """Whatever reads a tensor from here on reads another."""
        self.renamed[old.value] = new.value
        rows = self._shape(old)[0], self._shape(new)[0]
        if rows[0] != rows[1]:
            self.rows[new.value] = rows

    def _set_rows(self, value: int, old: Size, new: Size) -> None:
        if value not in self.rows:
            self.rows[value] = old, new
            size = self._number(self._values[value].bytes) * self._number(new) // max(1, self._number(old))
            self._values[value] = msgspec.structs.replace(self._values[value], bytes=size)

    # new nodes

    def _split(self, sent: Size, received: Size, *, back: bool = False) -> dict[str, list[int]]:
        """Rows to and from each rank, the fullest first, where they differ; ``back``: the way back to the senders."""
        if not self._load.shares:
            return {}
        there = dealt(self._number(sent), self._load.shares, self._degree)
        here = dealt(self._number(received), (), self._degree)
        return {"sent": here, "received": there} if back else {"sent": there, "received": here}

    def _communicated(
        self, operator: str, operand: Operand, arrived: Operand, scope: str, **split: list[int]
    ) -> Operand:
        """Issue a collective from one tensor to another, and wait for it."""
        self._nodes.append(Node(operator, scope, (operand,), (arrived,), attributes={"group": GROUP, **split}))
        self._nodes.append(Node(WAIT, scope, (arrived,), (), view=True))
        return arrived

    def _made(self, operator: str, scope: str, inputs: tuple[Operand, ...], dtype: str, *shape: Size) -> Operand:
        made = self._new(dtype, *shape)
        self._add(operator, scope, inputs, made)
        return made

    def _add(
        self, operator: str, scope: str, inputs: tuple[Operand, ...], made: Operand, **attributes: int | str | list[int]
    ) -> None:
        self._nodes.append(Node(operator, scope, inputs, (made,), attributes=attributes))

    def _new(self, dtype: str, *shape: Size) -> Operand:
        self._values.append(Value(Origin.OWN, product([*shape, dtype_bytes(dtype)])))
        strides = [product(shape[place + 1 :]) for place in range(len(shape))]
        return Operand(len(self._values) - 1, self._index(*shape), dtype, self._index(*strides))

    def _with_rows(self, operand: Operand, rows: Size) -> Operand:
        """A new tensor like another, with so many rows."""
        return self._new(operand.dtype, rows, *self._shape(operand)[1:])

    def _number(self, size: Size) -> int:
        return read(size)(self._task.batch, self._task.sequence)

    def _shape(self, operand: Operand) -> tuple[Size, ...]:
        return self._shapes.known[operand.shape]

    def _index(self, *shape: Size) -> int:
        return self._shapes.index(shape)


def _adds_to(node: Node, value: int) -> bool:
    return any(node.inputs[place].value == value for place in node.written)


def _makes(node: Node, value: int) -> bool:
    return not node.view and any(one.value == value for one in node.outputs)
