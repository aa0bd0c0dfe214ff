"""Checks that all indices in a graph are valid, so that a damaged file is refused before it is used."""

from __future__ import annotations

from collections.abc import Iterator

from presim.composition.graph.graph_schema import OperatorGraph, Segment, Value, ValueOrigin


def missing(graph: OperatorGraph) -> Iterator[str]:
    """One sentence for each reference to a segment, value or shape that the graph lacks."""
    for parameter in graph.parameters:
        if not -1 <= parameter.segment < len(graph.segments):
            yield f"the parameter {parameter.name} is of segment {parameter.segment}, which is not there"
    for number, segment in enumerate(graph.segments):
        for problem in (*_of_segment(segment, graph), *_of_values(segment, graph), *_of_nodes(segment, graph)):
            yield f"in segment {number}, {problem}"


def _of_segment(segment: Segment, graph: OperatorGraph) -> Iterator[str]:
    if segment.count < 1 or segment.first < 0 or (segment.count > 1 and not segment.name):
        yield f"{segment.count} blocks from number {segment.first} on cannot be"
    if not -1 <= segment.twin < len(graph.segments):
        yield f"the forward segment is number {segment.twin}, which is not there"
    elif segment.backward and segment.name:
        twin = graph.segments[segment.twin]
        if segment.twin < 0 or twin.backward or not twin.name or twin.count != segment.count:
            yield f"the forward segment, number {segment.twin}, has other blocks"
    for name, value in segment.gradients.items():
        if not 0 <= value < len(segment.values):
            yield f"the gradient of {name} is value {value}, which is not there"


def _of_values(segment: Segment, graph: OperatorGraph) -> Iterator[str]:
    for index, value in enumerate(segment.values):
        if value.origin in (ValueOrigin.SEGMENT, ValueOrigin.CARRY) and not _is_there(value, segment, graph):
            yield f"value {index} is value {value.index} of segment {value.segment}, which is not there"


def _is_there(value: Value, segment: Segment, graph: OperatorGraph) -> bool:
    if not 0 <= value.segment < len(graph.segments):
        return False
    source = graph.segments[value.segment]
    has_carried_value = value.origin is not ValueOrigin.CARRY or 0 <= value.again < len(segment.values)
    return has_carried_value and 0 <= value.index < len(source.values)


def _of_nodes(segment: Segment, graph: OperatorGraph) -> Iterator[str]:
    values, shapes = len(segment.values), len(graph.shapes)
    for node in segment.nodes:
        for operand in (*node.inputs, *node.outputs):
            if not 0 <= operand.value < values:
                yield f"{node.operator} names value {operand.value}, which is not there"
            if not (0 <= operand.shape < shapes and 0 <= operand.stride < shapes):
                yield f"{node.operator} names shape {operand.shape} or {operand.stride}, which is not there"
        if any(not 0 <= position < len(node.inputs) for position in node.written):
            yield f"{node.operator} writes inputs {node.written} of {len(node.inputs)}"
