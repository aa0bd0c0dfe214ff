"""Parameters of experts: which they are, and one rank's part of them."""

from __future__ import annotations

import msgspec

from presim.errors import InputError
from presim.graph.schema import OperatorGraph, Origin, Parameter

GROUPED = "aten::_grouped_mm"
Experts = frozenset[tuple[int, str]]  # (repeated forward segment, parameter name)


def experts(graph: OperatorGraph) -> Experts:
    """Parameters of experts: those of grouped matrix products, and others of the same modules, such as biases.

    Their first dimension is the number of experts.
    """
    grouped = _grouped(graph)
    homes = {(segment, name.rpartition(".")[0]) for segment, name in grouped}
    counts = {one.shape[0] for one in graph.parameters if (one.segment, one.name) in grouped}
    return grouped | {
        (one.segment, one.name)
        for one in graph.parameters
        if (one.segment, one.name.rpartition(".")[0]) in homes and one.shape[:1] and one.shape[0] in counts
    }


def _grouped(graph: OperatorGraph) -> Experts:
    return frozenset(
        (index, segment.values[operand.value].name)
        for index, segment in enumerate(graph.segments)
        for node in segment.nodes
        if node.operator == GROUPED and not segment.backward
        for operand in node.inputs
        if segment.values[operand.value].origin is Origin.PARAMETER
    )


def expert_count(graph: OperatorGraph) -> int:
    """Experts per layer: 1 if the model has none, the fewest if layers differ."""
    known = experts(graph)
    return min((one.shape[0] for one in graph.parameters if (one.segment, one.name) in known), default=1)


def part(graph: OperatorGraph, parameter: Parameter, degree: int) -> Parameter:
    """One rank's experts of a parameter; raises InputError where they do not divide."""
    count = parameter.shape[0]
    if count % degree:
        near = [one for one in range(1, count + 1) if count % one == 0]
        nearest = sorted(sorted(near, key=lambda one: abs(one - degree))[:4])
        raise InputError(
            f"expert = {degree} does not divide {count} experts of {graph.model} ({count} % {degree} = "
            f"{count % degree}); degrees that do: {', '.join(map(str, nearest))}"
        )
    return msgspec.structs.replace(parameter, shape=(count // degree, *parameter.shape[1:]))


def check_others(graph: OperatorGraph, known: Experts) -> None:
    """Raise InputError where experts have a parameter that is not one for each of them."""
    homes = {(segment, name.rpartition(".")[0]) for segment, name in known}
    for one in graph.parameters:
        if (one.segment, one.name.rpartition(".")[0]) in homes and (one.segment, one.name) not in known:
            raise InputError(
                f"{graph.model} has {one.name.lstrip('.')} beside its experts' products; expert parallelism cannot "
                "split this parameter; use an expert degree of 1"
            )
