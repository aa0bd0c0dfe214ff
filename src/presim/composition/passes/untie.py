"""Give the last pipeline stage a copy of parameters that it shares with the first, as Megatron-LM does.

The output layer of many models is their embedding. In one process both gradients are added up; in a pipeline each end
has its own parameter and gradient, which are all-reduced between the two once a step (`compose.runtime.tied`).
"""

from __future__ import annotations

import msgspec

from presim.composition.graph.graph_schema import Node, OperatorGraph, Parameter, Segment, Value, ValueOrigin

COPY = " (copy)"  # ends the name of a copy
_ADDS = ("aten::add", "aten::add_")


def apply(graph: OperatorGraph) -> OperatorGraph:
    """The graph with copies of tied parameters; unchanged if none is tied, or one is used by more than two segments."""
    for parameter in graph.parameters:
        if parameter.segment < 0:
            graph = _untied(graph, parameter)
    return graph


def copies(graph: OperatorGraph) -> list[Parameter]:
    """The parameters that `apply` has added."""
    return [parameter for parameter in graph.parameters if parameter.name.endswith(COPY)]


def _untied(graph: OperatorGraph, parameter: Parameter) -> OperatorGraph:
    forward_indices = [
        index
        for index, segment in enumerate(graph.segments)
        if not segment.backward and _reads_parameter(segment, parameter.name)
    ]
    gradient_sum = _sum_of_gradients(graph, parameter.name)
    if len(forward_indices) != 2 or gradient_sum is None:
        return graph
    sum_index, node, other_gradient = gradient_sum
    copy_name = parameter.name + COPY
    segments = list(graph.segments)
    value = segments[sum_index].values[other_gradient]
    segment_gradient = next(operand.value for operand in node.inputs if operand.value != other_gradient)
    segments[sum_index] = _without_sum(segments[sum_index], node, other_gradient, segment_gradient, parameter.name)
    for index, segment in enumerate(segments):
        if index == forward_indices[-1] or (segment.backward and index != sum_index):
            segments[index] = _with_parameter_renamed(segment, parameter.name, copy_name)
    output_segment = segments[value.segment]
    gradients = {**output_segment.gradients, copy_name: value.index}
    segments[value.segment] = msgspec.structs.replace(output_segment, gradients=gradients)
    parameters = (*graph.parameters, msgspec.structs.replace(parameter, name=copy_name))
    return msgspec.structs.replace(graph, segments=tuple(segments), parameters=parameters)


def _reads_parameter(segment: Segment, name: str) -> bool:
    return any(value.origin is ValueOrigin.PARAMETER and value.name == name for value in segment.values)


def _sum_of_gradients(graph: OperatorGraph, name: str) -> tuple[int, Node, int] | None:
    """(segment, node that adds up both gradients of a parameter, its value with the other segment's gradient)."""
    for index, segment in enumerate(graph.segments):
        gradient = segment.gradients.get(name)
        for node in segment.nodes if gradient is not None else ():
            values = [operand.value for operand in node.inputs]
            if node.operator in _ADDS and gradient in (*values[:1], *(operand.value for operand in node.outputs)):
                other_gradients = [value for value in values if segment.values[value].origin is ValueOrigin.SEGMENT]
                if len(other_gradients) == 1 and len(values) == 2:
                    return index, node, other_gradients[0]
    return None


def _without_sum(segment: Segment, sum_node: Node, other_gradient: int, segment_gradient: int, name: str) -> Segment:
    """The segment without the sum: its own part is the parameter's gradient."""
    values = list(segment.values)
    values[other_gradient] = Value(ValueOrigin.OWN, 0)
    return msgspec.structs.replace(
        segment,
        nodes=tuple(node for node in segment.nodes if node is not sum_node),
        values=tuple(values),
        gradients={**segment.gradients, name: segment_gradient},
    )


def _with_parameter_renamed(segment: Segment, old: str, new: str) -> Segment:
    values = tuple(
        msgspec.structs.replace(value, name=new)
        if value.origin is ValueOrigin.PARAMETER and value.name == old
        else value
        for value in segment.values
    )
    return msgspec.structs.replace(segment, values=values)
