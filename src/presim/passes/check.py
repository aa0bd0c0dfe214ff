"""What must hold after a pass: parameters are conserved, and every tensor is made before it is used."""

from __future__ import annotations

from collections.abc import Iterator

from presim.errors import InputError
from presim.graph.parameters import size
from presim.graph.schema import OperatorGraph, Origin, Segment


def check(graph: OperatorGraph, before: OperatorGraph, name: str) -> None:
    """Raise where a pass broke a graph; what was so before is not its doing.

    Raises:
        InputError: with the pass, the operator and what is wrong.
    """
    _check_parameters(graph, before, name)
    known = None
    for problem in problems(graph):
        known = set(problems(before)) if known is None else known
        if problem not in known:
            raise InputError(f"the pass {name} broke the graph: {problem}; correct the pass")


def problems(graph: OperatorGraph) -> Iterator[str]:
    """Operators that could not run, in words."""
    for index, segment in enumerate(graph.segments):
        whole = True
        for node in segment.nodes:
            for operand in (*node.inputs, *node.outputs):
                if not (0 <= operand.value < len(segment.values)):
                    whole = False
                    yield _said(segment, node.operator, f"names value {operand.value}, which is not there")
                if not (0 <= operand.shape < len(graph.shapes) and 0 <= operand.stride < len(graph.shapes)):
                    yield _said(segment, node.operator, f"names shape {operand.shape}, which is not there")
        if whole:
            yield from _in_order(segment)
            yield from _from_elsewhere(graph, index)


def _check_parameters(graph: OperatorGraph, before: OperatorGraph, name: str) -> None:
    def total(one: OperatorGraph) -> int:
        counts = [segment.count for segment in one.segments]
        return sum(size(parameter) * (counts[parameter.segment] if parameter.segment >= 0 else 1)
                   for parameter in one.parameters)  # fmt: skip

    if total(graph) != total(before):
        raise InputError(
            f"the pass {name} changed the parameters from {total(before):,} to {total(graph):,} bytes; correct it, a "
            "pass must keep them"
        )


def _in_order(segment: Segment) -> Iterator[str]:
    made = {index for index, value in enumerate(segment.values) if value.origin is not Origin.OWN}
    for node in segment.nodes:
        written = {node.inputs[place].value for place in node.written}
        for operand in node.inputs:
            if operand.value not in made and operand.value not in written:
                yield _said(segment, node.operator, f"uses value {operand.value} before any operator made it")
        made |= {operand.value for operand in node.outputs} | written


def _from_elsewhere(graph: OperatorGraph, index: int) -> Iterator[str]:
    """Values from other segments are made there, or were there before."""
    segment = graph.segments[index]
    for place, value in enumerate(segment.values):
        if value.origin not in (Origin.SEGMENT, Origin.CARRY) or not _is_used(segment, place):
            continue
        other = graph.segments[value.segment]
        theirs = other.values[value.index] if value.index < len(other.values) else None
        made = theirs is not None and (theirs.origin is not Origin.OWN or _is_made(other, value.index))
        if not made:
            yield _said(segment, f"value {place}", f"comes from segment {value.segment}, where no operator makes it")


def _is_used(segment: Segment, place: int) -> bool:
    return any(operand.value == place for node in segment.nodes for operand in (*node.inputs, *node.outputs))


def _is_made(segment: Segment, place: int) -> bool:
    return any(operand.value == place for node in segment.nodes for operand in node.outputs) or any(
        node.inputs[position].value == place for node in segment.nodes for position in node.written
    )


def _said(segment: Segment, what: str, why: str) -> str:
    return f"{what} in the {'backward' if segment.backward else 'forward'} of {segment.name or 'the model'} {why}"
