"""Invariants after a pass: parameters are conserved, and every tensor is created before it is used."""

from __future__ import annotations

from collections.abc import Iterator

from presim.composition.graph.graph_schema import OperatorGraph, Segment, ValueOrigin
from presim.composition.graph.parameters import size
from presim.composition.passes.collective_names import PREFIX
from presim.errors import InputError


def check(graph: OperatorGraph, before: OperatorGraph, name: str, *, shares: int = 1, packs: bool = False) -> None:
    """Raise if a pass broke a graph; problems that existed before are ignored.

    ``shares``: number of ranks that may each hold one part of a parameter. ``packs``: the pass stores
    parameters in fewer bytes.

    Raises:
        InputError: names the pass, the operator and the problem.
    """
    if not packs:
        _check_parameters(graph, before, name, shares)
    earlier_problems = None
    for problem in problems(graph):
        earlier_problems = set(problems(before)) if earlier_problems is None else earlier_problems
        if problem not in earlier_problems:
            raise InputError(f"the pass {name} broke the graph: {problem}; correct the pass")


def problems(graph: OperatorGraph) -> Iterator[str]:
    """Descriptions of operators that could not run."""
    written_by_segment = [_written_values(segment) for segment in graph.segments]
    for index, segment in enumerate(graph.segments):
        has_valid_operands = True
        num_values, num_shapes = len(segment.values), len(graph.shapes)
        for node in segment.nodes:
            for operand in (*node.inputs, *node.outputs):
                if not 0 <= operand.value < num_values:
                    has_valid_operands = False
                    yield _problem(segment, node.operator, f"refers to value {operand.value}, which does not exist")
                if not (0 <= operand.shape < num_shapes and 0 <= operand.stride < num_shapes):
                    yield _problem(segment, node.operator, f"refers to shape {operand.shape}, which does not exist")
        if has_valid_operands:
            yield from _order_problems(segment)
            yield from _cross_segment_problems(graph, index, written_by_segment)


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

    def total(counted_graph: OperatorGraph) -> int:
        counts = [segment.count for segment in counted_graph.segments]
        return sum(size(parameter) * (counts[parameter.segment] if parameter.segment >= 0 else 1)
                   for parameter in counted_graph.parameters)  # fmt: skip

    if total(graph) != total(before):
        raise InputError(
            f"the pass {name} changed the parameters from {total(before):,} to {total(graph):,} bytes; correct the "
            "pass, parameters must stay the same"
        )


def _order_problems(segment: Segment) -> Iterator[str]:
    written_values = {index for index, value in enumerate(segment.values) if value.origin is not ValueOrigin.OWN}
    for node in segment.nodes:
        written = {node.inputs[position].value for position in node.written}
        for operand in node.inputs:
            if operand.value not in written_values and operand.value not in written:
                yield _problem(segment, node.operator, f"uses value {operand.value} before any operator writes it")
        written_values.update(operand.value for operand in node.outputs)
        written_values |= written


def _written_values(segment: Segment) -> set[int]:
    """Values that a segment's operators write."""
    written_values = {operand.value for node in segment.nodes for operand in node.outputs}
    for node in segment.nodes:
        written_values.update(node.inputs[position].value for position in node.written)
        if node.operator.startswith(PREFIX) and not node.outputs:
            written_values.update(operand.value for operand in node.inputs)
    return written_values


def _cross_segment_problems(graph: OperatorGraph, index: int, written_by_segment: list[set[int]]) -> Iterator[str]:
    """Check that values from other segments are written there or exist before the step."""
    segment = graph.segments[index]
    used_values = {operand.value for node in segment.nodes for operand in (*node.inputs, *node.outputs)}
    for value_index, value in enumerate(segment.values):
        if value.origin not in (ValueOrigin.SEGMENT, ValueOrigin.CARRY) or value_index not in used_values:
            continue
        source_values = graph.segments[value.segment].values
        is_available = value.index < len(source_values) and (
            source_values[value.index].origin is not ValueOrigin.OWN or value.index in written_by_segment[value.segment]
        )
        if not is_available:
            yield _problem(
                segment, f"value {value_index}", f"comes from segment {value.segment}, where no operator writes it"
            )


def _problem(segment: Segment, subject: str, defect: str) -> str:
    return f"{subject} in the {'backward' if segment.backward else 'forward'} of {segment.name or 'the model'} {defect}"
