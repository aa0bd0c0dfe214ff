"""Selective recomputation: keep the outputs of some operators, and recompute everything else that backward needs.

Follows ``torch.utils.checkpoint`` with a selective policy. By default, outputs of matrix products, attention,
communication and random numbers are kept; memory-bound operators of a block run again when its backward pass begins.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from presim.composition.graph.graph_schema import Node, Operand, OperatorGraph, Segment, Value, ValueOrigin

_KEPT = (
    "aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::_grouped_mm", "aten::_scaled", "aten::convolution",
    "aten::native_dropout", "comm::",
)  # fmt: skip


def is_never_recomputed(node: Node) -> bool:
    """Whether an operator is too expensive to run again."""
    return node.operator.startswith(_KEPT)


def recompute(graph: OperatorGraph, runs_once: Callable[[Node], bool] = is_never_recomputed) -> OperatorGraph:
    """Start each block's backward pass with its recomputation; operators for which ``runs_once`` is true run once."""
    segments = tuple(
        with_recomputation(
            graph.segments[segment.twin], segment, _values_written_once(graph.segments[segment.twin], runs_once)
        )
        if segment.backward and segment.twin >= 0 and segment.name
        else segment
        for segment in graph.segments
    )
    return msgspec.structs.replace(graph, segments=segments)


def _values_written_once(forward: Segment, runs_once: Callable[[Node], bool]) -> set[int]:
    """Values written by operators that run once."""
    return {
        value
        for value, node_indices in writers_by_value(forward).items()
        if any(runs_once(forward.nodes[node_index]) for node_index in node_indices)
    }


def writers_by_value(forward: Segment) -> dict[int, list[int]]:
    """Value -> indices of the nodes that write it."""
    nodes_by_value: dict[int, list[int]] = {}
    for node_index, node in enumerate(forward.nodes):
        if node.view and not node.operator.startswith("comm::"):
            continue
        written = {node.inputs[position].value for position in node.written}
        written |= {operand.value for operand in node.outputs}
        if node.operator.startswith("comm::"):
            written |= {operand.value for operand in node.inputs}
        for value in written:
            nodes_by_value.setdefault(value, []).append(node_index)
    return nodes_by_value


def with_recomputation(forward: Segment, backward: Segment, kept_values: set[int]) -> Segment:
    """The backward segment preceded by recomputation of everything it needs, except the values in ``kept_values``."""
    return _RecomputingSegment(forward, backward, kept_values).segment()


class _RecomputingSegment:
    """One backward segment being rewritten."""

    def __init__(self, forward: Segment, backward: Segment, kept_values: set[int]) -> None:
        self._forward, self._backward = forward, backward
        self._writers_by_value = writers_by_value(forward)
        self._recomputable = {
            value_index
            for value_index, value in enumerate(forward.values)
            if value.origin is ValueOrigin.OWN
            and value_index in self._writers_by_value
            and value_index not in kept_values
        }
        self._values = list(backward.values)
        self._value_numbers = {
            value.index: value_number
            for value_number, value in enumerate(backward.values)
            if value.origin is ValueOrigin.SEGMENT and value.segment == backward.twin
        }

    def segment(self) -> Segment:
        """The backward segment with its recomputation at the beginning."""
        recomputed_values = self._recomputed_values()
        node_indices = sorted(
            {node_index for value_index in recomputed_values for node_index in self._writers_by_value[value_index]}
        )
        for value_index in recomputed_values:
            self._define_value(value_index, Value(ValueOrigin.OWN, self._forward.values[value_index].bytes))
        recomputed_nodes = tuple(self._renumbered_node(self._forward.nodes[node_index]) for node_index in node_indices)
        return msgspec.structs.replace(
            self._backward, values=tuple(self._values), nodes=(*recomputed_nodes, *self._backward.nodes)
        )

    def _recomputed_values(self) -> set[int]:
        """Forward values to recompute: those that backward uses, and their inputs."""
        recomputed_values: set[int] = set()
        pending_values = [value_index for value_index in self._value_numbers if value_index in self._recomputable]
        while pending_values:
            value_index = pending_values.pop()
            if value_index in recomputed_values:
                continue
            recomputed_values.add(value_index)
            for node_index in self._writers_by_value[value_index]:
                node = self._forward.nodes[node_index]
                touched = (*node.inputs, *node.outputs)
                pending_values += [operand.value for operand in touched if operand.value in self._recomputable]
        return recomputed_values

    def _renumbered_node(self, node: Node) -> Node:
        return msgspec.structs.replace(
            node,
            inputs=tuple(self._renumbered_operand(operand) for operand in node.inputs),
            outputs=tuple(self._renumbered_operand(operand) for operand in node.outputs),
        )

    def _renumbered_operand(self, operand: Operand) -> Operand:
        if operand.value not in self._value_numbers:
            value = self._forward.values[operand.value]
            is_input = value.origin in (ValueOrigin.PARAMETER, ValueOrigin.BUFFER, ValueOrigin.INPUT)
            self._define_value(
                operand.value,
                value if is_input else Value(ValueOrigin.SEGMENT, value.bytes, "", self._backward.twin, operand.value),
            )
        return msgspec.structs.replace(operand, value=self._value_numbers[operand.value])

    def _define_value(self, value_index: int, value: Value) -> None:
        """Define a forward value inside the backward segment."""
        if value_index in self._value_numbers:
            self._values[self._value_numbers[value_index]] = value
        else:
            self._value_numbers[value_index] = len(self._values)
            self._values.append(value)
