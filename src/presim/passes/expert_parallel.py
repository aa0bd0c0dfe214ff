"""Expert parallelism: every rank holds some of the experts; tokens travel to their experts and back.

Follows torchtitan's all-to-all dispatcher. Ranks exchange token counts, the host waits for these counts, tokens are
exchanged, sorted by expert, and multiplied in groups by the rank's own experts. Results travel back the same way.
Tokens are assumed to be spread evenly, so a rank has as many tokens as without expert parallelism.
"""

from __future__ import annotations

import dataclasses

import msgspec

from presim.errors import InputError
from presim.graph.schema import Node, Operand, OperatorGraph, Origin, Segment, Value
from presim.graph.sizes import Size, divide, product
from presim.passes.collectives import ALL_TO_ALL, WAIT
from presim.passes.expert_parameters import GROUPED, check_others, experts, part

GROUP = "experts"
_INDEX, _PUT = "aten::index", "aten::index_put"
_NUMBER = 8  # bytes of an int64 index


def apply(graph: OperatorGraph, degree: int) -> OperatorGraph:
    """The graph of one of ``degree`` ranks; unchanged if ``degree`` is 1.

    Raises:
        InputError: the model has no experts in grouped products, or they do not divide among the ranks.
    """
    if degree == 1:
        return graph
    known = experts(graph)
    if not known:
        raise InputError(f"{graph.model} has no experts in grouped products; use an expert degree of 1")
    parameters = tuple(part(graph, one, degree) if (one.segment, one.name) in known else one
                       for one in graph.parameters)  # fmt: skip
    check_others(graph, known)
    shapes = _Shapes(graph.shapes)
    rewritten: list[_Exchange] = []
    for index, segment in enumerate(graph.segments):
        home = segment.twin if segment.backward else index
        names = {name for where, name in known if where == home}
        rewritten.append(_Exchange(graph, segment, names, degree, shapes, rewritten))
    segments = tuple(one.segment() for one in rewritten)
    return msgspec.structs.replace(graph, segments=segments, shapes=tuple(shapes.known), parameters=parameters)


@dataclasses.dataclass(frozen=True)
class _Place:
    """The nodes where tokens enter and leave one layer's experts."""

    first: int  # dispatch tokens before this node
    last: int  # combine tokens after this node
    tokens_in: Operand
    made: Operand
    offsets: Operand  # end index of each expert's tokens


class _Shapes:
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


class _Exchange:
    """A segment being rewritten."""

    def __init__(
        self,
        graph: OperatorGraph,
        segment: Segment,
        names: set[str],
        degree: int,
        shapes: _Shapes,
        before: list[_Exchange],
    ) -> None:
        self._graph, self._segment, self._degree, self._shapes = graph, segment, degree, shapes
        self._values, self._nodes = list(segment.values), list[Node]()
        self.renamed: dict[int, int] = {}  # value -> tensor that replaces it after an exchange
        self.order: dict[str, int] = {}  # scope -> index that sorts tokens by expert
        self.ids: dict[str, int] = {}  # scope -> each sorted token's expert among the rank's own, for biases
        self._experts = {
            index for index, value in enumerate(segment.values)
            if value.origin is Origin.PARAMETER and value.name in names
        } | {index for name, index in segment.gradients.items() if name in names}  # fmt: skip
        self._sums: dict[str, Operand] = {}  # scope -> tokens of each of the rank's own experts
        # gradients of biases are summed into zeros
        self._experts |= {
            node.inputs[0].value
            for node in segment.nodes
            if node.operator == _PUT and node.outputs[0].value in self._experts
        }
        self._before = before
        if self._experts:
            self._rewrite()
        else:
            self._nodes = list(segment.nodes)

    def segment(self) -> Segment:
        """The segment with its exchanges."""
        return msgspec.structs.replace(self._segment, values=tuple(self._values), nodes=tuple(self._nodes))

    def _rewrite(self) -> None:
        for index in self._experts:
            value = self._values[index]
            self._values[index] = msgspec.structs.replace(value, bytes=divide(value.bytes, self._degree) or 0)
        for index, value in enumerate(self._values):
            if value.origin is Origin.SEGMENT:
                there = self._before[value.segment].renamed.get(value.index, value.index)
                self._values[index] = msgspec.structs.replace(value, index=there)
        found = dict.fromkeys(node.scope for node in self._segment.nodes if node.operator == GROUPED)
        places = [self._place(scope) for scope in found]
        starts, ends = {one.first: one for one in places}, {one.last: one for one in places}
        offsets = {one.offsets.value for one in places}
        early: list[Node] = []  # of biases, which are looked up for the tokens that arrive
        for number, node in enumerate(self._segment.nodes):
            if number in starts:
                self._dispatch(starts[number], self._segment.nodes[number].scope)
                self._nodes += [self._own(one, offsets) for one in early]
                early.clear()
            if not self._segment.backward and any(one.value in offsets for one in node.outputs):
                continue  # recomputed for the rank's own experts
            if self._looks_up(node) and node.scope not in self.order:
                early.append(node)
                continue
            self._nodes.append(self._own(node, offsets))
            if number in ends:
                self._combine(ends[number], node.scope)

    def _place(self, scope: str) -> _Place:
        nodes = self._segment.nodes
        own = [number for number, node in enumerate(nodes) if node.operator == GROUPED and node.scope == scope]
        tokens = [number for number in own if len(self._graph.shapes[nodes[number].outputs[0].shape]) == 2]
        tokens_in = nodes[tokens[0]].inputs[0]
        maker = max(number for number in range(own[0]) if self._makes(nodes[number], tokens_in.value))
        first = next(number for number in range(maker + 1, len(nodes))
                     if any(one.value == tokens_in.value for one in nodes[number].inputs))  # fmt: skip
        return _Place(first, tokens[-1], tokens_in, nodes[tokens[-1]].outputs[0], nodes[own[0]].inputs[2])

    def _makes(self, node: Node, value: int) -> bool:
        return not node.view and any(one.value == value for one in node.outputs)

    def _looks_up(self, node: Node) -> bool:
        """Whether a node reads a bias of each token's expert, or sums its gradients."""
        return node.operator in (_INDEX, _PUT) and node.inputs[0].value in self._experts

    def _own(self, node: Node, offsets: set[int]) -> Node:
        """The node applied to the rank's own experts and the tokens it received."""
        if self._looks_up(node):
            ids = msgspec.structs.replace(node.inputs[1], value=self._own_ids(node))
            node = msgspec.structs.replace(node, inputs=(node.inputs[0], ids, *node.inputs[2:]))

        def new(operand: Operand) -> Operand:
            if operand.value in self._experts or operand.value in offsets:
                count, *others = self._shape(operand)
                operand = msgspec.structs.replace(operand, shape=self._index(divide(count, self._degree) or 0, *others))
            return msgspec.structs.replace(operand, value=self.renamed.get(operand.value, operand.value))

        return msgspec.structs.replace(node, inputs=tuple(map(new, node.inputs)), outputs=tuple(map(new, node.outputs)))

    def _dispatch(self, place: _Place, scope: str) -> None:
        tokens_in = place.tokens_in
        if self._segment.backward:
            self.order[scope] = self._saved_order(place, scope)
            arrived = self._exchanged(tokens_in, scope)
        else:
            counts = self._counted(place, scope)
            arrived = self._exchanged(tokens_in, scope)
            self.order[scope] = self._ordered(counts, place, scope)
        rows = self._like(tokens_in)
        self._add("aten::index", scope, (arrived, self._indices(place, scope)), rows)
        self.renamed[tokens_in.value] = rows.value

    def _combine(self, place: _Place, scope: str) -> None:
        made, rows, indices = place.made, self._like(place.made), self._indices(place, scope)
        if self._segment.backward:  # gradient of sorting tokens by expert
            zeros = self._like(made)
            self._add("aten::new_zeros", scope, (made,), zeros)
            self._add("aten::index_put", scope, (zeros, indices, made), rows, accumulate=1)
        else:
            self._add("aten::new_empty", scope, (made,), rows)
            node = Node("aten::index_put_", scope, (rows, indices, made), (rows,), written=(0,))
            self._nodes.append(msgspec.structs.replace(node, attributes={"accumulate": 0}))
        self.renamed[made.value] = self._exchanged(rows, scope).value

    def _counted(self, place: _Place, scope: str) -> Operand:
        """Exchange token counts per expert; the host waits for the sums."""
        nodes = self._segment.nodes
        summed = next(node for node in nodes if any(one.value == place.offsets.value for one in node.outputs))
        sent = summed.inputs[0]
        received = self._exchanged(sent, scope)
        for one, operator in ((sent, "experts::splits"), (received, "aten::_local_scalar_dense")):
            sums = self._new(one.dtype, self._degree)
            self._add("aten::sum", scope, (self._matrix(one),), sums, dim=[1], keepdim=0)
            self._nodes.append(Node(operator, scope, (sums,), ()))
        return received

    def _ordered(self, counts: Operand, place: _Place, scope: str) -> int:
        """Build the index that sorts tokens by expert from the received counts, with torchtitan's operators."""
        total = self._shape(place.tokens_in)[0]
        experts_ = self._shape(counts)[0]

        def few(operator: str, *inputs: Operand) -> Operand:
            return self._made(operator, scope, inputs, counts.dtype, experts_)

        starts = few("aten::clone", few("aten::sub", few("aten::cumsum", counts), counts))
        lengths = few("aten::clone", counts)
        ends = few("aten::sub", few("aten::cumsum", lengths), lengths)
        groups = self._made("aten::repeat_interleave", scope, (few("aten::arange"), lengths), "int64", total)
        first = self._made("aten::index", scope, (starts, groups), "int64", total)
        numbers = self._made("aten::arange", scope, (), "int64", total)
        added = self._made("aten::add", scope, (first, numbers), "int64", total)
        last = self._made("aten::index", scope, (ends, groups), "int64", total)
        order = self._made("aten::sub", scope, (added, last), "int64", total)
        own = divide(experts_, self._degree) or 0
        sums = self._new(counts.dtype, own)
        self._add("aten::sum", scope, (self._matrix(counts),), sums, dim=[0], keepdim=0)
        self._sums[scope] = sums
        offsets = msgspec.structs.replace(place.offsets, shape=self._index(own))
        size = divide(self._values[offsets.value].bytes, self._degree) or 0
        self._values[offsets.value] = msgspec.structs.replace(self._values[offsets.value], bytes=size)
        self._add("aten::cumsum", scope, (sums,), offsets, dim=0)
        return order.value

    def _own_ids(self, node: Node) -> int:
        """Each sorted token's expert among the rank's own; made once a layer, and kept for the backward pass."""
        scope = node.scope
        if scope not in self.ids and self._segment.backward:
            twin, rows = self._segment.twin, self._shape(node.inputs[1])[0]
            index = self._before[twin].ids[scope]
            self._values.append(Value(Origin.SEGMENT, product([_NUMBER, rows]), segment=twin, index=index))
            self.ids[scope] = len(self._values) - 1
        elif scope not in self.ids:
            sums, total = self._sums[scope], self._shape(node.inputs[1])[0]
            own = self._made("aten::arange", scope, (), "int64", self._shape(sums)[0])
            self.ids[scope] = self._made("aten::repeat_interleave", scope, (own, sums), "int64", total).value
        return self.ids[scope]

    def _saved_order(self, place: _Place, scope: str) -> int:
        """The index that sorted tokens in the forward pass."""
        twin = self._segment.twin
        index = self._before[twin].order[scope]
        rows = self._shape(place.tokens_in)[0]
        self._values.append(Value(Origin.SEGMENT, product([_NUMBER, rows]), segment=twin, index=index))
        return len(self._values) - 1

    def _indices(self, place: _Place, scope: str) -> Operand:
        rows = self._shape(place.tokens_in)[0]
        return Operand(self.order[scope], self._index(rows), "int64", self._index(1))

    def _exchanged(self, operand: Operand, scope: str) -> Operand:
        arrived = self._like(operand)
        self._nodes.append(Node(ALL_TO_ALL, scope, (operand,), (arrived,), attributes={"group": GROUP}))
        self._nodes.append(Node(WAIT, scope, (arrived,), (), view=True))
        return arrived

    def _made(self, operator: str, scope: str, inputs: tuple[Operand, ...], dtype: str, size: Size) -> Operand:
        made = self._new(dtype, size)
        self._add(operator, scope, inputs, made)
        return made

    def _add(
        self, operator: str, scope: str, inputs: tuple[Operand, ...], made: Operand, **attributes: int | str | list[int]
    ) -> None:
        self._nodes.append(Node(operator, scope, inputs, (made,), attributes=attributes))

    def _new(self, dtype: str, size: Size) -> Operand:
        each = 4 if dtype == "int32" else _NUMBER
        self._values.append(Value(Origin.OWN, product([each, size])))
        return Operand(len(self._values) - 1, self._index(size), dtype, self._index(1))

    def _like(self, operand: Operand) -> Operand:
        self._values.append(Value(Origin.OWN, self._values[operand.value].bytes))
        return msgspec.structs.replace(operand, value=len(self._values) - 1)

    def _matrix(self, counts: Operand) -> Operand:
        """The counts as a matrix of rank by expert."""
        own = divide(self._shape(counts)[0], self._degree) or 0
        return msgspec.structs.replace(counts, shape=self._index(self._degree, own), stride=self._index(own, 1))

    def _shape(self, operand: Operand) -> tuple[Size, ...]:
        return self._shapes.known[operand.shape]

    def _index(self, *shape: Size) -> int:
        return self._shapes.index(shape)
