"""Selective recomputation: keep the outputs of some operators, and recompute everything else that backward needs.

Follows ``torch.utils.checkpoint`` with a selective policy. By default, outputs of matrix products, attention,
communication and random numbers are kept; memory-bound operators of a block run again when its backward pass begins.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from presim.graph.schema import Node, Operand, OperatorGraph, Origin, Segment, Value

_KEPT = (
    "aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::_grouped_mm", "aten::_scaled", "aten::convolution",
    "aten::native_dropout", "comm::",
)  # fmt: skip


def keeps(node: Node) -> bool:
    """Whether an operator is too expensive to run again."""
    return node.operator.startswith(_KEPT)


def recompute(graph: OperatorGraph, kept: Callable[[Node], bool] = keeps) -> OperatorGraph:
    """Start each block's backward pass with its recomputation; operators for which ``kept`` is true run once."""
    segments = tuple(
        with_again(graph.segments[segment.twin], segment, _stays(graph.segments[segment.twin], kept))
        if segment.backward and segment.twin >= 0 and segment.name
        else segment
        for segment in graph.segments
    )
    return msgspec.structs.replace(graph, segments=segments)


def _stays(forward: Segment, kept: Callable[[Node], bool]) -> set[int]:
    """Values written by operators that run once."""
    return {index for index, places in makers(forward).items() if any(kept(forward.nodes[place]) for place in places)}


def makers(forward: Segment) -> dict[int, list[int]]:
    """Value -> indices of the nodes that write it."""
    found: dict[int, list[int]] = {}
    for place, node in enumerate(forward.nodes):
        if node.view and not node.operator.startswith("comm::"):
            continue
        written = {node.inputs[position].value for position in node.written}
        written |= {operand.value for operand in node.outputs}
        if node.operator.startswith("comm::"):
            written |= {operand.value for operand in node.inputs}
        for index in written:
            found.setdefault(index, []).append(place)
    return found


def with_again(forward: Segment, backward: Segment, stays: set[int]) -> Segment:
    """The backward segment preceded by recomputation of everything it needs, except the values in ``stays``."""
    return _Again(forward, backward, stays).segment()


class _Again:
    """One backward segment being rewritten."""

    def __init__(self, forward: Segment, backward: Segment, stays: set[int]) -> None:
        self._forward, self._backward = forward, backward
        self._makers = makers(forward)
        self._cheap = {
            index
            for index, value in enumerate(forward.values)
            if value.origin is Origin.OWN and index in self._makers and index not in stays
        }
        self._values = list(backward.values)
        self._place = {
            value.index: place
            for place, value in enumerate(backward.values)
            if value.origin is Origin.SEGMENT and value.segment == backward.twin
        }

    def segment(self) -> Segment:
        """The backward segment with its recomputation at the beginning."""
        needed = self._needed()
        places = sorted({place for index in needed for place in self._makers[index]})
        for index in needed:
            self._set(index, Value(Origin.OWN, self._forward.values[index].bytes))
        again = tuple(self._moved(self._forward.nodes[place]) for place in places)
        return msgspec.structs.replace(
            self._backward, values=tuple(self._values), nodes=(*again, *self._backward.nodes)
        )

    def _needed(self) -> set[int]:
        """Forward values to recompute: those that backward uses, and their inputs."""
        needed: set[int] = set()
        waiting = [index for index in self._place if index in self._cheap]
        while waiting:
            index = waiting.pop()
            if index in needed:
                continue
            needed.add(index)
            for place in self._makers[index]:
                node = self._forward.nodes[place]
                touched = (*node.inputs, *node.outputs)
                waiting += [one.value for one in touched if one.value in self._cheap]
        return needed

    def _moved(self, node: Node) -> Node:
        return msgspec.structs.replace(
            node,
            inputs=tuple(self._operand(operand) for operand in node.inputs),
            outputs=tuple(self._operand(operand) for operand in node.outputs),
        )

    def _operand(self, operand: Operand) -> Operand:
        if operand.value not in self._place:
            value = self._forward.values[operand.value]
            outside = value.origin in (Origin.PARAMETER, Origin.BUFFER, Origin.INPUT)
            self._set(
                operand.value,
                value if outside else Value(Origin.SEGMENT, value.bytes, "", self._backward.twin, operand.value),
            )
        return msgspec.structs.replace(operand, value=self._place[operand.value])

    def _set(self, index: int, value: Value) -> None:
        """Define a forward value inside the backward segment."""
        if index in self._place:
            self._values[self._place[index]] = value
        else:
            self._place[index] = len(self._values)
            self._values.append(value)
