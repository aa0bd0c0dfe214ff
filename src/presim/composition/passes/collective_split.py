"""Split a product whose result is reduced over ranks, so that parts are reduced while the next ones are computed.

The product's weight is split by columns, as DeepSpeed-Domino does (arXiv 2409.15241). Each part is a product and a
collective of its own; all are copied into the result once they have come.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence

import msgspec

from presim.composition.graph.graph_schema import Node, Operand, OperatorGraph, Segment, Value, ValueOrigin
from presim.composition.graph.sizes import Size, divide
from presim.composition.passes.collective_names import ALL_REDUCE, PREFIX, REDUCE_SCATTER, WAIT

_PARTS = (2, 4)
_PRODUCTS = ("aten::mm",)
_COPIES = ("aten::clone", "aten::cat")


def passes() -> dict[str, Callable[[OperatorGraph], OperatorGraph]]:
    """Passes by name, one for each number of parts."""
    return {f"split-collectives-{parts}": functools.partial(apply, parts=parts) for parts in _PARTS}


def apply(graph: OperatorGraph, parts: int) -> OperatorGraph:
    """The graph with all-reduces and reduce-scatters of products in parts; others stay as they are."""
    shapes = {shape: index for index, shape in enumerate(graph.shapes)}
    referenced_values = [
        {value.index for other in graph.segments for value in other.values if value.segment == index}
        for index in range(len(graph.segments))
    ]
    segments = tuple(
        _Splitting(segment, referenced, shapes, parts).segment()
        for segment, referenced in zip(graph.segments, referenced_values)
    )
    return msgspec.structs.replace(graph, segments=segments, shapes=tuple(shapes))


class _Splitting:
    def __init__(self, segment: Segment, referenced: set[int], shapes: dict[tuple[Size, ...], int], parts: int) -> None:
        """``referenced``: values that other segments use."""
        self._referenced = referenced
        self._segment, self._shapes, self._parts = segment, shapes, parts
        self._values = list(segment.values)
        self._dims = list(shapes)

    def segment(self) -> Segment:
        nodes = list(self._segment.nodes)
        for collective in [node for node in nodes if node.operator in (ALL_REDUCE, REDUCE_SCATTER)]:
            nodes = self._split(nodes, collective)
        return msgspec.structs.replace(self._segment, nodes=tuple(nodes), values=tuple(self._values))

    def _split(self, nodes: list[Node], collective: Node) -> list[Node]:
        """The nodes with one collective in parts; unchanged where no product precedes it, or sizes do not divide."""
        end = next(index for index, node in enumerate(nodes) if node is collective)
        chain = _producers(nodes, end)
        result = (collective.outputs or collective.inputs)[0].value
        wait = next((i for i in range(end, len(nodes)) if _waits_for(nodes[i], result)), None)
        if chain is None or wait is None:
            return nodes
        steps = [*(nodes[index] for index in chain), collective]
        inner_values = {operand.value for step in steps for operand in _results(step)}
        if any(self._values[value].origin is not ValueOrigin.OWN for value in inner_values):
            return nodes
        if (inner_values - {result}) & self._referenced:
            return nodes
        between = [node for index, node in enumerate(nodes[chain[0] : wait], chain[0]) if index not in (*chain, end)]
        early = [node for node in between if not _uses(node, inner_values)]
        late = [node for node in between if _uses(node, inner_values)]  # views, which are no work
        if not self._divides(steps) or not all(node.view and node.operator != WAIT for node in late):
            return nodes
        if any(node.operator.startswith(PREFIX) and node.operator != WAIT for node in between):
            return nodes
        started, received = self._in_parts(steps)
        waits = [msgspec.structs.replace(nodes[wait], inputs=(operand,)) for operand in received]
        joined = Node("aten::cat", collective.scope, tuple(received), (_results(collective)[0],))
        views = [node for node in late if _uses(node, {result})]  # others are of tensors that are now in parts
        return [*nodes[: chain[0]], *started, *early, *waits, joined, *views, *nodes[wait + 1 :]]

    def _divides(self, steps: Iterable[Node]) -> bool:
        operands = [operand for step in steps for operand in _results(step)]
        sizes = [self._dims[operand.shape][-1] for operand in operands]
        sizes += [self._values[operand.value].bytes for operand in operands]
        return all(divide(size, self._parts) is not None for size in sizes)

    def _in_parts(self, steps: Sequence[Node]) -> tuple[list[Node], list[Operand]]:
        """The steps once for each part, and the parts of the result."""
        nodes, received = list[Node](), list[Operand]()
        for _ in range(self._parts):
            part_by_value: dict[int, int] = {}
            for step in steps:
                weight = step.inputs[-1:] if step.operator in _PRODUCTS else ()
                inputs = tuple(
                    self._part(operand, part_by_value)
                    if operand.value in part_by_value
                    else self._columns(operand)
                    if operand in weight
                    else operand
                    for operand in step.inputs
                )
                outputs = tuple(self._part(operand, part_by_value) for operand in step.outputs)
                nodes.append(msgspec.structs.replace(step, inputs=inputs, outputs=outputs))
            received.append((nodes[-1].outputs or nodes[-1].inputs)[0])
        return nodes, received

    def _part(self, operand: Operand, part_by_value: dict[int, int]) -> Operand:
        """A part of a result, in a storage of its own."""
        if operand.value not in part_by_value:
            size = divide(self._values[operand.value].bytes, self._parts)
            assert size is not None  # by `_divides`
            self._values.append(Value(ValueOrigin.OWN, size))
            part_by_value[operand.value] = len(self._values) - 1
        return msgspec.structs.replace(self._columns(operand), value=part_by_value[operand.value])

    def _columns(self, operand: Operand) -> Operand:
        *rows, columns = self._dims[operand.shape]
        shape = (*rows, divide(columns, self._parts))
        return msgspec.structs.replace(operand, shape=self._shapes.setdefault(shape, len(self._shapes)))  # type: ignore[arg-type]


def _producers(nodes: Sequence[Node], end: int) -> list[int] | None:
    """Indices of a product and of plain copies of its result, up to a collective; None if there is no such chain."""
    chain: list[int] = []
    value = nodes[end].inputs[0].value
    for index in range(end - 1, -1, -1):
        node = nodes[index]
        if node.view or value not in [operand.value for operand in _results(node)]:
            continue
        if len(node.outputs) != 1 or node.written or node.operator not in (*_PRODUCTS, *_COPIES):
            return None
        chain.insert(0, index)
        if node.operator in _PRODUCTS:
            return chain
        if len(node.inputs) != 1:
            return None
        value = node.inputs[0].value
    return None


def _results(node: Node) -> tuple[Operand, ...]:
    """What a node writes; a collective without outputs writes its inputs."""
    written = tuple(node.inputs[position] for position in node.written)
    is_in_place = node.operator.startswith(PREFIX) and node.operator != WAIT and not node.outputs
    return (*node.outputs, *written, *(node.inputs if is_in_place else ()))


def _uses(node: Node, values: set[int]) -> bool:
    return any(operand.value in values for operand in (*node.inputs, *node.outputs))


def _waits_for(node: Node, value: int) -> bool:
    return node.operator == WAIT and node.inputs[0].value == value
