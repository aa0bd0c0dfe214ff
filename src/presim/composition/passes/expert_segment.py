"""A segment whose experts are split among ranks: the part that all token exchanges have in common."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence

import msgspec

from presim.composition.graph.graph_schema import Node, Operand, OperatorGraph, Segment, Value, ValueOrigin
from presim.composition.graph.sizes import Size, divide, product, read
from presim.composition.passes.collective_names import WAIT
from presim.composition.passes.expert_parameters import GROUPED
from presim.composition.passes.expert_routing import ExpertLoad, apportion, group_sizes, scaled
from presim.trace.dtypes import dtype_bytes

GROUP = "experts"
INDEX, PUT = "aten::index", "aten::index_put"


@dataclasses.dataclass(frozen=True)
class ExpertSpan:
    """The nodes of one layer's experts from the first that reads tokens to the last product, by number."""

    scope: str
    maker: int  # makes the rows of tokens
    first: int  # the first node that reads them
    last: int  # the last product of tokens
    tokens_in: Operand
    tokens_out: Operand
    offsets: Operand  # end index of each expert's tokens


class Shapes:
    """The graph's shapes, plus new ones."""

    def __init__(self, shapes: tuple[tuple[Size, ...], ...]) -> None:
        self.table = list(shapes)
        self._indices = {shape: index for index, shape in enumerate(shapes)}

    def index(self, shape: tuple[Size, ...]) -> int:
        """The index of a shape; adds it if it is new."""
        index = self._indices.setdefault(shape, len(self.table))
        if index == len(self.table):
            self.table.append(shape)
        return index


@dataclasses.dataclass(frozen=True)
class Task:
    """Data shared by the segments of a graph. ``batch``, ``sequence``: sizes of a micro-batch on one rank."""

    graph: OperatorGraph
    degree: int
    load: ExpertLoad
    shapes: Shapes
    batch: int
    sequence: int


class ExpertSegment(abc.ABC):
    """A segment being rewritten for one rank's experts."""

    def __init__(
        self, task: Task, segment: Segment, names: set[str], earlier_segments: Sequence[ExpertSegment]
    ) -> None:
        """``names``: parameters of experts in this segment; ``earlier_segments``: the segments before it, rewritten."""
        self._segment, self._degree, self._load, self._shapes = segment, task.degree, task.load, task.shapes
        self._task, self._earlier_segments = task, earlier_segments
        self._values, self._nodes = list(segment.values), list[Node]()
        self.renamed: dict[int, int] = {}  # value -> tensor that replaces it after an exchange
        self.rows: dict[int, tuple[Size, Size]] = {}  # value -> its rows in the graph, and on this rank
        self.saved_tensors: dict[tuple[str, str], Operand] = {}  # (scope, role) -> tensor kept for the backward pass
        self._offsets: set[int] = set()
        self._experts = {
            index for index, value in enumerate(segment.values)
            if value.origin is ValueOrigin.PARAMETER and value.name in names
        } | {index for name, index in segment.gradients.items() if name in names}  # fmt: skip
        # gradients of biases are summed into zeros
        self._experts |= {
            node.inputs[0].value
            for node in segment.nodes
            if node.operator == PUT and node.outputs[0].value in self._experts
        }
        if self._experts:
            self._prepare()
            expert_scopes = dict.fromkeys(node.scope for node in segment.nodes if node.operator == GROUPED)
            spans = [self._find_span(scope) for scope in expert_scopes]
            self._offsets = {span.offsets.value for span in spans}
            self._rewrite(spans)
        else:
            self._nodes = list(segment.nodes)

    @abc.abstractmethod
    def _rewrite(self, spans: Sequence[ExpertSpan]) -> None:
        """Fill the list of nodes."""

    def segment(self) -> Segment:
        """The segment with its exchanges; forward values that it no longer reads become empty."""
        used = {operand.value for node in self._nodes for operand in (*node.inputs, *node.outputs)}
        values = tuple(
            value
            if index in used or not self._experts or value.origin is not ValueOrigin.SEGMENT
            else Value(ValueOrigin.OWN, 0)
            for index, value in enumerate(self._values)
        )
        return msgspec.structs.replace(self._segment, values=values, nodes=tuple(self._nodes))

    def _prepare(self) -> None:
        """Cut parameters to the rank's experts; point saved values to their replacements in the forward pass."""
        for index in self._experts:
            value = self._values[index]
            self._values[index] = msgspec.structs.replace(value, bytes=divide(value.bytes, self._degree) or 0)
        for index, value in enumerate(self._values):
            if value.origin is not ValueOrigin.SEGMENT:
                continue
            source_segment = self._earlier_segments[value.segment]
            value_index = source_segment.renamed.get(value.index, value.index)
            self._values[index] = msgspec.structs.replace(value, index=value_index)
            if value_index in source_segment.rows:
                self._set_rows(index, *source_segment.rows[value_index])

    def _find_span(self, scope: str) -> ExpertSpan:
        nodes = self._segment.nodes
        grouped_products = [
            number for number, node in enumerate(nodes) if node.operator == GROUPED and node.scope == scope
        ]
        tokens = [
            number for number in grouped_products if len(self._task.graph.shapes[nodes[number].outputs[0].shape]) == 2
        ]
        tokens_in = nodes[tokens[0]].inputs[0]
        maker = max(number for number in range(grouped_products[0]) if _makes(nodes[number], tokens_in.value))
        first = next(number for number in range(maker + 1, len(nodes))
                     if any(operand.value == tokens_in.value for operand in nodes[number].inputs))  # fmt: skip
        tokens_out, offsets, last = nodes[tokens[-1]].outputs[0], nodes[grouped_products[0]].inputs[2], tokens[-1]
        while last + 1 < len(nodes) and _writes_in_place(nodes[last + 1], tokens_out.value):
            last += 1  # biases
        return ExpertSpan(scope, maker, first, last, tokens_in, tokens_out, offsets)

    def _looks_up(self, node: Node) -> bool:
        """Whether a node reads a bias of each token's expert, or sums its gradients."""
        return node.operator in (INDEX, PUT) and node.inputs[0].value in self._experts

    def _with_local_experts(self, node: Node) -> Node:
        """The node applied to the local experts and to the received tokens."""
        if self._looks_up(node):
            ids = msgspec.structs.replace(node.inputs[1], value=self._local_expert_ids(node))
            node = msgspec.structs.replace(node, inputs=(node.inputs[0], ids, *node.inputs[2:]))
        attributes = node.attributes
        if node.operator == GROUPED and self._load.groups:
            attributes = {**attributes, "sizes": self._group_sizes(node)}
        inputs, outputs = tuple(map(self._local_operand, node.inputs)), tuple(map(self._local_operand, node.outputs))
        return msgspec.structs.replace(node, inputs=inputs, outputs=outputs, attributes=attributes)

    def _local_operand(self, operand: Operand) -> Operand:
        value = self.renamed.get(operand.value, operand.value)
        shape = self._shape(operand)
        if operand.value in self._experts or operand.value in self._offsets:
            shape = (divide(shape[0], self._degree) or 0, *shape[1:])
        elif value in self.rows:
            old, new = self.rows[value]
            shape = tuple(new if size == old else size for size in shape)
        return msgspec.structs.replace(operand, value=value, shape=self._index(*shape))

    def _group_sizes(self, node: Node) -> list[int]:
        """Rows of each local expert in a grouped product; empty if all are equal."""
        left, right, group_ends = (self._shape(self._local_operand(operand)) for operand in node.inputs[:3])
        rows = right[0] if len(right) == 2 else left[0]
        return group_sizes(self._number(rows), self._load, self._number(group_ends[0]))

    def _local_expert_ids(self, node: Node) -> int:
        """The local expert of each token copy, to look up biases; computed once per layer and saved for backward."""
        scope = node.scope
        if (scope, "ids") not in self.saved_tensors and not self._segment.backward:
            counts, rows = self.saved_tensors[scope, "counts"], self._received_rows(self._shape(node.inputs[1])[0])
            expert_ids = self._compute("aten::arange", scope, (), "int64", *self._shape(counts))
            self._save(
                scope, "ids", self._compute("aten::repeat_interleave", scope, (expert_ids, counts), "int64", rows)
            )
        return self._saved(scope, "ids").value

    def _end_groups(self, span: ExpertSpan, counts: Operand) -> None:
        """Compute the end offset of each local expert's rows from ``counts``, and save the counts for backward."""
        self._save(span.scope, "counts", counts)
        offsets = msgspec.structs.replace(span.offsets, shape=self._index(*self._shape(counts)))
        size = divide(self._values[offsets.value].bytes, self._degree) or 0
        self._values[offsets.value] = msgspec.structs.replace(self._values[offsets.value], bytes=size)
        self._add("aten::cumsum", span.scope, (counts,), offsets, dim=0)

    def _save(self, scope: str, role: str, operand: Operand) -> Operand:
        self.saved_tensors[scope, role] = operand
        return operand

    def _saved(self, scope: str, role: str) -> Operand:
        """A tensor that `_save` kept in this segment or in its forward segment."""
        if (scope, role) not in self.saved_tensors:
            twin = self._segment.twin
            forward_tensor = self._earlier_segments[twin].saved_tensors[scope, role]
            existing_values = [
                number
                for number, value in enumerate(self._values)
                if value.origin is ValueOrigin.SEGMENT and (value.segment, value.index) == (twin, forward_tensor.value)
            ]
            index = existing_values[0] if existing_values else len(self._values)
            if index == len(self._values):
                size = self._earlier_segments[twin]._values[forward_tensor.value].bytes
                self._values.append(Value(ValueOrigin.SEGMENT, size, segment=twin, index=forward_tensor.value))
            self.saved_tensors[scope, role] = msgspec.structs.replace(forward_tensor, value=index)
        return self.saved_tensors[scope, role]

    # rows of tensors

    def _received_rows(self, rows: Size) -> Size:
        """Rows that the fullest rank receives; ``rows``: the number under even routing."""
        return rows if self._load.received == 1 else scaled(self._number(rows), self._load.received)

    def _sent_rows(self, rows: Size) -> Size:
        """Rows that a rank sends; ``rows``: the number without a capacity."""
        return rows if self._load.sent == 1 else scaled(self._number(rows), self._load.sent)

    def _resize(self, nodes: Sequence[Node], old: Size, new: Size) -> None:
        """Change the number of rows of the floating-point tensors that these nodes produce."""
        for operand in [operand for node in nodes if not node.view for operand in node.outputs]:
            is_own = self._values[operand.value].origin is ValueOrigin.OWN and operand.value not in self._experts
            if new != old and is_own and old in self._shape(operand) and not operand.dtype.startswith("int"):
                self._set_rows(operand.value, old, new)

    def _replace(self, old: Operand, new: Operand) -> None:
        """Let later nodes read ``new`` instead of ``old``."""
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

    def _rows_by_rank(self, sent: Size, received: Size, *, back: bool = False) -> dict[str, list[int]]:
        """Rows sent to and received from each rank, the fullest first; empty if all are equal.

        ``back``: the exchange returns rows to the senders.
        """
        if not self._load.shares:
            return {}
        uneven_rows = apportion(self._number(sent), self._load.shares, self._degree)
        even_rows = apportion(self._number(received), (), self._degree)
        return {"sent": even_rows, "received": uneven_rows} if back else {"sent": uneven_rows, "received": even_rows}

    def _communicate(
        self, operator: str, operand: Operand, arrived: Operand, scope: str, **split: list[int]
    ) -> Operand:
        """Issue a collective from one tensor to another, and wait for it."""
        self._nodes.append(Node(operator, scope, (operand,), (arrived,), attributes={"group": GROUP, **split}))
        self._nodes.append(Node(WAIT, scope, (arrived,), (), view=True))
        return arrived

    def _compute(self, operator: str, scope: str, inputs: tuple[Operand, ...], dtype: str, *shape: Size) -> Operand:
        out = self._new_tensor(dtype, *shape)
        self._add(operator, scope, inputs, out)
        return out

    def _add(
        self, operator: str, scope: str, inputs: tuple[Operand, ...], out: Operand, **attributes: int | str | list[int]
    ) -> None:
        self._nodes.append(Node(operator, scope, inputs, (out,), attributes=attributes))

    def _new_tensor(self, dtype: str, *shape: Size) -> Operand:
        self._values.append(Value(ValueOrigin.OWN, product([*shape, dtype_bytes(dtype)])))
        strides = [product(shape[dim + 1 :]) for dim in range(len(shape))]
        return Operand(len(self._values) - 1, self._index(*shape), dtype, self._index(*strides))

    def _with_rows(self, operand: Operand, rows: Size) -> Operand:
        """A new tensor of the same type and width with ``rows`` rows."""
        return self._new_tensor(operand.dtype, rows, *self._shape(operand)[1:])

    def _number(self, size: Size) -> int:
        return read(size)(self._task.batch, self._task.sequence)

    def _shape(self, operand: Operand) -> tuple[Size, ...]:
        return self._shapes.table[operand.shape]

    def _index(self, *shape: Size) -> int:
        return self._shapes.index(shape)


def _writes_in_place(node: Node, value: int) -> bool:
    return any(node.inputs[position].value == value for position in node.written)


def _makes(node: Node, value: int) -> bool:
    return not node.view and any(operand.value == value for operand in node.outputs)
