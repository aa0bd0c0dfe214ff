"""Split the code before the blocks in two: positions and masks, which every stage computes itself, and the rest."""

from __future__ import annotations

import msgspec

from presim.composition.graph.graph_schema import Node, Operand, OperatorGraph, Segment, Value, ValueOrigin


def apply(graph: OperatorGraph) -> OperatorGraph:
    """The graph with the shared segment first; unchanged if blocks use no values that are independent of parameters."""
    if not graph.segments or graph.segments[0].name or graph.segments[0].backward or graph.segments[0].shared:
        return graph
    root = graph.segments[0]
    shared_values = _parameter_free_values(root) & _used_by_blocks(graph)
    shared_nodes = _nodes_computing(root, shared_values)
    if not shared_nodes:
        return graph
    shared, shared_numbers = _segment_part(
        root, [node for node_index, node in enumerate(root.nodes) if node_index in shared_nodes], {}
    )
    values_of_shared = {
        old: Value(ValueOrigin.SEGMENT, root.values[old].bytes, segment=0, index=new)
        for old, new in shared_numbers.items()
    }
    values_of_shared = {
        old: value for old, value in values_of_shared.items() if root.values[old].origin is ValueOrigin.OWN
    }
    rest_of_root, rest_numbers = _segment_part(
        root, [node for node_index, node in enumerate(root.nodes) if node_index not in shared_nodes], values_of_shared
    )
    gradients = {name: rest_numbers[index] for name, index in root.gradients.items()}
    root_parts = (
        msgspec.structs.replace(shared, shared=True),
        msgspec.structs.replace(rest_of_root, gradients=gradients),
    )

    def moved_value(value: Value) -> Value:
        if value.segment < 0:
            return value
        if value.segment > 0:
            return msgspec.structs.replace(value, segment=value.segment + 1)
        is_shared = value.index in values_of_shared
        return msgspec.structs.replace(
            value, segment=0 if is_shared else 1, index=(shared_numbers if is_shared else rest_numbers)[value.index]
        )

    later_segments = tuple(
        msgspec.structs.replace(
            segment,
            values=tuple(moved_value(value) for value in segment.values),
            twin=segment.twin + 1 if segment.twin >= 0 else -1,
        )
        for segment in graph.segments[1:]
    )
    parameters = tuple(
        msgspec.structs.replace(parameter, segment=parameter.segment + 1 if parameter.segment >= 0 else -1)
        for parameter in graph.parameters
    )
    return msgspec.structs.replace(graph, segments=(*root_parts, *later_segments), parameters=parameters)


def _parameter_free_values(root: Segment) -> set[int]:
    """Values that do not depend on parameters."""
    parameter_dependent = {index for index, value in enumerate(root.values) if value.origin is ValueOrigin.PARAMETER}
    for node in root.nodes:
        if any(operand.value in parameter_dependent for operand in node.inputs):
            parameter_dependent |= {operand.value for operand in node.outputs}
            parameter_dependent |= {node.inputs[position].value for position in node.written}
    return {index for index, value in enumerate(root.values) if value.origin is ValueOrigin.OWN} - parameter_dependent


def _used_by_blocks(graph: OperatorGraph) -> set[int]:
    return {
        value.index
        for segment in graph.segments[1:]
        if segment.name
        for value in segment.values
        if value.segment == 0 and value.origin in (ValueOrigin.SEGMENT, ValueOrigin.CARRY)
    }


def _nodes_computing(root: Segment, values: set[int]) -> set[int]:
    """Indices of the nodes that compute values, including their inputs."""
    needed_values, node_indices = set(values), set[int]()
    for node_index in range(len(root.nodes) - 1, -1, -1):
        node = root.nodes[node_index]
        written_values = {operand.value for operand in node.outputs} | {
            node.inputs[position].value for position in node.written
        }
        if written_values & needed_values:
            node_indices.add(node_index)
            needed_values |= {operand.value for operand in node.inputs}
    return node_indices


def _segment_part(root: Segment, nodes: list[Node], outside_values: dict[int, Value]) -> tuple[Segment, dict[int, int]]:
    """A segment of some nodes, and a map old -> new value number; values in ``outside_values`` come from elsewhere."""
    used_values = sorted({operand.value for node in nodes for operand in (*node.inputs, *node.outputs)})
    new_numbers = {old: new for new, old in enumerate(used_values)}

    def renumbered(operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
        return tuple(msgspec.structs.replace(operand, value=new_numbers[operand.value]) for operand in operands)

    values = tuple(outside_values.get(old, root.values[old]) for old in used_values)
    renumbered_nodes = tuple(
        msgspec.structs.replace(node, inputs=renumbered(node.inputs), outputs=renumbered(node.outputs))
        for node in nodes
    )
    return msgspec.structs.replace(root, values=values, nodes=renumbered_nodes, gradients={}), new_numbers
