"""Identify the parameters of experts, and cut them to one rank's part."""

from __future__ import annotations

import msgspec

from presim.composition.graph.graph_schema import OperatorGraph, Parameter, ValueOrigin
from presim.errors import InputError

GROUPED = "aten::_grouped_mm"
Experts = frozenset[tuple[int, str]]  # (repeated forward segment, parameter name)


def experts(graph: OperatorGraph) -> Experts:
    """Parameters of experts: those of grouped matrix products, and others of the same modules, such as biases.

    Their first dimension is the number of experts.
    """
    grouped = _grouped(graph)
    modules = {(segment, name.rpartition(".")[0]) for segment, name in grouped}
    counts = {parameter.shape[0] for parameter in graph.parameters if (parameter.segment, parameter.name) in grouped}
    return grouped | {
        (parameter.segment, parameter.name)
        for parameter in graph.parameters
        if (parameter.segment, parameter.name.rpartition(".")[0]) in modules
        and parameter.shape[:1]
        and parameter.shape[0] in counts
    }


def _grouped(graph: OperatorGraph) -> Experts:
    return frozenset(
        (index, segment.values[operand.value].name)
        for index, segment in enumerate(graph.segments)
        for node in segment.nodes
        if node.operator == GROUPED and not segment.backward
        for operand in node.inputs
        if segment.values[operand.value].origin is ValueOrigin.PARAMETER
    )


def expert_count(graph: OperatorGraph) -> int:
    """Experts per layer: 1 if the model has none, the fewest if layers differ."""
    expert_names = experts(graph)
    return min(
        (parameter.shape[0] for parameter in graph.parameters if (parameter.segment, parameter.name) in expert_names),
        default=1,
    )


def part(graph: OperatorGraph, parameter: Parameter, degree: int) -> Parameter:
    """One rank's experts of a parameter; raises InputError where they do not divide."""
    count = parameter.shape[0]
    if count % degree:
        divisors = [divisor for divisor in range(1, count + 1) if count % divisor == 0]
        nearest = sorted(sorted(divisors, key=lambda divisor: abs(divisor - degree))[:4])
        raise InputError(
            f"expert = {degree} does not divide {count} experts of {graph.model} ({count} % {degree} = "
            f"{count % degree}); degrees that do: {', '.join(map(str, nearest))}"
        )
    return msgspec.structs.replace(parameter, shape=(count // degree, *parameter.shape[1:]))


def check_unsplit_parameters(graph: OperatorGraph, expert_names: Experts) -> None:
    """Raise InputError if a module of experts has a parameter whose first dimension is not the number of experts."""
    modules = {(segment, name.rpartition(".")[0]) for segment, name in expert_names}
    for parameter in graph.parameters:
        module = parameter.segment, parameter.name.rpartition(".")[0]
        if module in modules and (parameter.segment, parameter.name) not in expert_names:
            raise InputError(
                f"{graph.model} has {parameter.name.lstrip('.')} beside its experts' products; expert parallelism "
                "cannot split this parameter; use an expert degree of 1"
            )
