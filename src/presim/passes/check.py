"""Invariants after a pass: parameters are conserved, and every tensor is created before it is used."""

from __future__ import annotations

from collections.abc import Iterator

from presim.errors import InputError
from presim.graph.parameters import size
from presim.graph.schema import OperatorGraph, Origin, Segment
from presim.passes.collectives import PREFIX


def check(graph: OperatorGraph, before: OperatorGraph, name: str, *, shares: int = 1, packs: bool = False) -> None:
    """Raise if a pass broke a graph; problems that existed before are ignored.

    ``shares``: number of ranks that may each hold one part of a parameter. ``packs``: the pass stores
    parameters in fewer bytes.

    Raises:
        InputError: names the pass, the operator and the problem.
    """
    if not packs:
        _check_parameters(graph, before, name, shares)
    known = None
    for problem in problems(graph):
        known = set(problems(before)) if known is None else known
        if problem not in known:
            raise InputError(f"the pass {name} broke the graph: {problem}; correct the pass")


def problems(graph: OperatorGraph) -> Iterator[str]:
    """Descriptions of operators that could not run."""
    made = [_made(segment) for segment in graph.segments]
    for index, segment in enumerate(graph.segments):
        whole = True
        values, shapes = len(segment.values), len(graph.shapes)
        for node in segment.nodes:
            for operand in (*node.inputs, *node.outputs):
                if not 0 <= operand.value < values:
                    whole = False
                    yield _problem(segment, node.operator, f"refers to value {operand.value}, which does not exist")
                if not (0 <= operand.shape < shapes and 0 <= operand.stride < shapes):
                    yield _problem(segment, node.operator, f"refers to shape {operand.shape}, which does not exist")
        if whole:
            yield from _in_order(segment)
            yield from _from_elsewhere(graph, index, made)


def _check_parameters(graph: OperatorGraph, before: OperatorGraph, name: str, shares: int) -> None:
    """Check that parameter bytes stay the same; if ranks share parameters, each is whole or one rank's part."""
    if shares > 1:
        for old, new in zip(before.parameters, graph.parameters, strict=True):
            if size(old) not in (size(new), size(new) * shares):
                raise InputError(
                    f"the pass {name} changed the parameter {old.name} from {size(old):,} to {size(new):,} bytes, "
                    f"which is neither the whole nor one of {shares} equal parts; correct the pass"
                )
        return

    def total(one: OperatorGraph) -> int:
        counts = [segment.count for segment in one.segments]
        return sum(size(parameter) * (counts[parameter.segment] if parameter.segment >= 0 else 1)
                   for parameter in one.parameters)  # fmt: skip

    if total(graph) != total(before):
        raise InputError(
            f"the pass {name} changed the parameters from {total(before):,} to {total(graph):,} bytes; correct the "
            "pass, parameters must stay the same"
        )


def _in_order(segment: Segment) -> Iterator[str]:
    made = {index for index, value in enumerate(segment.values) if value.origin is not Origin.OWN}
    for node in segment.nodes:
        written = {node.inputs[place].value for place in node.written}
        for operand in node.inputs:
            if operand.value not in made and operand.value not in written:
                yield _problem(segment, node.operator, f"uses value {operand.value} before any operator writes it")
        made.update(operand.value for operand in node.outputs)
        made |= written


def _made(segment: Segment) -> set[int]:
    """Values that a segment's operators write."""
    found = {operand.value for node in segment.nodes for operand in node.outputs}
    for node in segment.nodes:
        found.update(node.inputs[position].value for position in node.written)
        if node.operator.startswith(PREFIX) and not node.outputs:
            found.update(operand.value for operand in node.inputs)
    return found


def _from_elsewhere(graph: OperatorGraph, index: int, made: list[set[int]]) -> Iterator[str]:
    """Check that values from other segments are written there or exist before the step."""
    segment = graph.segments[index]
    used = {operand.value for node in segment.nodes for operand in (*node.inputs, *node.outputs)}
    for place, value in enumerate(segment.values):
        if value.origin not in (Origin.SEGMENT, Origin.CARRY) or place not in used:
            continue
        other = graph.segments[value.segment].values
        is_there = value.index < len(other) and (
            other[value.index].origin is not Origin.OWN or value.index in made[value.segment]
        )
        if not is_there:
            yield _problem(
                segment, f"value {place}", f"comes from segment {value.segment}, where no operator writes it"
            )


def _problem(segment: Segment, what: str, why: str) -> str:
    return f"{what} in the {'backward' if segment.backward else 'forward'} of {segment.name or 'the model'} {why}"
