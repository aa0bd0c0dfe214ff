"""Give the last pipeline stage a copy of parameters that it shares with the first, as Megatron-LM does.

The output layer of many models is their embedding. In one process both gradients are added up; in a pipeline each end
has its own parameter and gradient, which are all-reduced between the two once a step (`compose.runtime.tied`).
"""

from __future__ import annotations

import msgspec

from presim.graph.schema import Node, OperatorGraph, Origin, Parameter, Segment, Value

COPY = " (copy)"  # ends the name of a copy
_ADDS = ("aten::add", "aten::add_")


def apply(graph: OperatorGraph) -> OperatorGraph:
    """The graph with copies of tied parameters; unchanged if none is tied, or one is used in more than two places."""
    for parameter in graph.parameters:
        if parameter.segment < 0:
            graph = _untied(graph, parameter)
    return graph


def copies(graph: OperatorGraph) -> list[Parameter]:
    """The parameters that `apply` has added."""
    return [one for one in graph.parameters if one.name.endswith(COPY)]


def _untied(graph: OperatorGraph, parameter: Parameter) -> OperatorGraph:
    forward = [index for index, one in enumerate(graph.segments) if not one.backward and _uses(one, parameter.name)]
    found = _sum_of_gradients(graph, parameter.name)
    if len(forward) != 2 or found is None:
        return graph
    summed, node, theirs = found
    name = parameter.name + COPY
    segments = list(graph.segments)
    value = segments[summed].values[theirs]
    own = next(one.value for one in node.inputs if one.value != theirs)
    segments[summed] = _alone(segments[summed], node, theirs, own, parameter.name)
    for index, segment in enumerate(segments):
        if index == forward[-1] or (segment.backward and index != summed):
            segments[index] = _renamed(segment, parameter.name, name)
    head = segments[value.segment]
    gradients = {**head.gradients, name: value.index}
    segments[value.segment] = msgspec.structs.replace(head, gradients=gradients)
    parameters = (*graph.parameters, msgspec.structs.replace(parameter, name=name))
    return msgspec.structs.replace(graph, segments=tuple(segments), parameters=parameters)


def _uses(segment: Segment, name: str) -> bool:
    return any(value.origin is Origin.PARAMETER and value.name == name for value in segment.values)


def _sum_of_gradients(graph: OperatorGraph, name: str) -> tuple[int, Node, int] | None:
    """(segment, node that adds up both gradients of a parameter, its value with the other segment's gradient)."""
    for index, segment in enumerate(graph.segments):
        made = segment.gradients.get(name)
        for node in segment.nodes if made is not None else ():
            values = [one.value for one in node.inputs]
            if node.operator in _ADDS and made in (*values[:1], *(one.value for one in node.outputs)):
                theirs = [one for one in values if segment.values[one].origin is Origin.SEGMENT]
                if len(theirs) == 1 and len(values) == 2:
                    return index, node, theirs[0]
    return None


def _alone(segment: Segment, node: Node, theirs: int, own: int, name: str) -> Segment:
    """The segment without the sum: its own part is the parameter's gradient."""
    values = list(segment.values)
    values[theirs] = Value(Origin.OWN, 0)
    return msgspec.structs.replace(
        segment,
        nodes=tuple(one for one in segment.nodes if one is not node),
        values=tuple(values),
        gradients={**segment.gradients, name: own},
    )


def _renamed(segment: Segment, old: str, new: str) -> Segment:
    values = tuple(
        msgspec.structs.replace(value, name=new) if value.origin is Origin.PARAMETER and value.name == old else value
        for value in segment.values
    )
    return msgspec.structs.replace(segment, values=values)
