"""Locate the nodes of a layer's experts in Transformers' grouped experts, and those that an exchange replaces.

Forward, these experts sort the choices of all tokens, copy a token for each of its experts, multiply in groups, weigh
the outputs, restore the order and sum by token. Backward undoes this in reverse.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeAlias

from presim.composition.graph.graph_schema import Node, Operand, Segment
from presim.composition.graph.sizes import Size
from presim.composition.passes.expert_segment import INDEX, PUT, ExpertSpan
from presim.errors import InputError

_SORTING = ("aten::sort", "aten::floor_divide", "aten::_to_copy", "aten::histc", "aten::cumsum")
_RESTORING = ("aten::empty_like", "aten::arange", "aten::index_put_")
ShapeTable: TypeAlias = Sequence[tuple[Size, ...]]
LooksUp: TypeAlias = Callable[[Node], bool]


@dataclasses.dataclass(frozen=True)
class ExpertLayer:
    """Nodes by number, and the tensors at the edges of what is replaced."""

    span: ExpertSpan
    dropped: frozenset[int]
    enter: int  # tokens are exchanged before this node
    leave: int  # results travel back before this node
    source: Operand  # tokens; backward: gradients of their sums
    target: Operand  # sums by token; backward: gradients of tokens
    rows_in: Operand  # copies of tokens; backward: of gradients
    rows_out: Operand  # weighed outputs; backward: gradients of the copies
    choices: Operand  # forward: experts of each token, (tokens, experts per token)
    weights: Operand  # their weights, likewise; backward: where gradients of these go
    row_weights: Operand | None  # the weight of each copy; backward: its gradient; None: copies are not weighed


class _ExpertNodes:
    """The nodes of one layer's experts."""

    def __init__(self, segment: Segment, shapes: ShapeTable, span: ExpertSpan, looks_up: LooksUp) -> None:
        self.nodes, self._shapes, self._span = segment.nodes, shapes, span
        self.expert_nodes = [(number, node) for number, node in enumerate(segment.nodes)
                    if node.scope == span.scope and not looks_up(node)]  # fmt: skip

    def before(self, *operators: str) -> list[tuple[int, Node]]:
        """Nodes before the first product, with these operators."""
        return [(number, node) for number, node in self.expert_nodes
                if number < self._span.first and node.operator in operators]  # fmt: skip

    def after(self, *operators: str) -> list[tuple[int, Node]]:
        """Nodes behind the last product, with these operators."""
        return [(number, node) for number, node in self.expert_nodes
                if number > self._span.last and node.operator in operators]  # fmt: skip

    def maker(self, value: int, before: int) -> int:
        """The last node before another that makes a value."""
        return max(number for number, node in self.expert_nodes
                   if number < before and not node.view and value in _values(node.outputs))  # fmt: skip

    def matrix(self, value: int) -> Operand:
        """A value as some node sees it in two dimensions."""
        operands = (
            operand for node in self.nodes for operand in (*node.outputs, *node.inputs) if operand.value == value
        )
        return next(operand for operand in operands if self.dimensions(operand) == 2)

    def dimensions(self, operand: Operand) -> int:
        """Number of dimensions of a tensor."""
        return len(self._shapes[operand.shape])

    def views(self, *values: int) -> set[int]:
        """Views of values."""
        return {number for number, node in self.expert_nodes if node.view and node.inputs[0].value in values}


def forward_layer(segment: Segment, shapes: ShapeTable, span: ExpertSpan, looks_up: LooksUp) -> ExpertLayer:
    """The layer in a forward segment.

    Raises:
        InputError: experts are computed in another way than Transformers' grouped ones.
    """
    nodes, copy_node = _ExpertNodes(segment, shapes, span, looks_up), segment.nodes[span.maker]
    try:
        sort = nodes.before("aten::sort")[0][1]
        weigh_node = next((node for number, node in nodes.before(INDEX) if number != span.maker), None)
        restored, restore = nodes.after(INDEX)[0]
        summed, total = next((number, node) for number, node in nodes.after("aten::sum") if number > restored)
        choices = nodes.matrix(sort.inputs[0].value)
        weights = nodes.matrix(weigh_node.inputs[0].value) if weigh_node else choices
    except (IndexError, StopIteration) as error:
        raise _unsupported_experts(span) from error
    dropped = {number for number, _ in nodes.before(*_SORTING, INDEX)}
    dropped |= {number for number, _ in nodes.after(*_RESTORING) if number < restored}
    return ExpertLayer(
        span,
        frozenset(dropped | {restored, summed} | nodes.views(restore.outputs[0].value)),
        enter=span.maker,
        leave=restored,
        source=copy_node.inputs[0],
        target=total.outputs[0],
        rows_in=copy_node.outputs[0],
        rows_out=restore.inputs[0],
        choices=choices,
        weights=weights,
        row_weights=weigh_node.outputs[0] if weigh_node else None,
    )


def backward_layer(segment: Segment, shapes: ShapeTable, span: ExpertSpan, looks_up: LooksUp) -> ExpertLayer:
    """The layer in a backward segment.

    Raises:
        InputError: experts are computed in another way than Transformers' grouped ones.
    """
    nodes = _ExpertNodes(segment, shapes, span, looks_up)
    try:
        first, put = next(
            (number, node) for number, node in nodes.before(PUT) if nodes.dimensions(node.outputs[0]) == 2
        )
        repeated = nodes.maker(put.inputs[2].value, first)
        source = nodes.matrix(segment.nodes[repeated].inputs[0].value)
        last, tokens = next(
            (number, node) for number, node in nodes.after(PUT) if nodes.dimensions(node.outputs[0]) == 2
        )
        flat = next(
            ((number, node) for number, node in nodes.after(PUT) if nodes.dimensions(node.outputs[0]) == 1), None
        )
        puts = [(first, put), (last, tokens), *([flat] if flat else [])]
        zeros = {nodes.maker(node.inputs[0].value, number) for number, node in puts}
    except (StopIteration, ValueError) as error:
        raise _unsupported_experts(span) from error
    dropped = {repeated, *zeros, *(number for number, _ in puts)}
    return ExpertLayer(
        span,
        frozenset(dropped | nodes.views(put.inputs[2].value)),
        enter=first,
        leave=max(number for number, _ in puts),
        source=source,
        target=tokens.outputs[0],
        rows_in=put.outputs[0],
        rows_out=tokens.inputs[2],
        choices=source,
        weights=flat[1].outputs[0] if flat else source,
        row_weights=flat[1].inputs[2] if flat else None,
    )


def _values(operands: tuple[Operand, ...]) -> set[int]:
    return {operand.value for operand in operands}


def _unsupported_experts(span: ExpertSpan) -> InputError:
    return InputError(
        f"the experts in {span.scope.lstrip('.')} are not computed as Transformers' grouped experts are; only "
        "expert_exchange = all-to-all works with them (--expert-exchange)"
    )
