"""Split backward passes for zero-bubble schedules.

Input gradients, which the previous stage needs, and weight gradients.

Each backward segment becomes two segments that run block by block: the first computes what other segments need, the
second the rest. As in PyTorch, saved activations are kept until the second has run.
"""

from __future__ import annotations

import msgspec

from presim.composition.graph.graph_schema import Node, Operand, OperatorGraph, Segment, Value, ValueOrigin


def apply(graph: OperatorGraph) -> OperatorGraph:
    """The graph with each backward segment that computes parameter gradients split in two."""
    part_indices = _part_indices(graph)
    parts: list[Segment] = []
    new_numbers: list[dict[int, int]] = []  # per segment: old -> new value number in the input part
    sum_locations: dict[tuple[int, int], tuple[int, int]] = {}  # in-place sum -> its new location
    for index, segment in enumerate(graph.segments):
        input_index, weight_index = part_indices[index]
        if input_index == weight_index:
            parts.append(segment)
            new_numbers.append({number: number for number in range(len(segment.values))})
            continue
        segment = _without_overwriting(
            _with_moved_sums(segment, sum_locations), _used_elsewhere(graph, index), index, sum_locations
        )
        input_part, weight_part, input_numbers = _split(graph, index, segment, input_index)
        parts += [input_part, weight_part]
        new_numbers.append(input_numbers)
    return _with_parts(graph, parts, part_indices, new_numbers)


def _part_indices(graph: OperatorGraph) -> list[tuple[int, int]]:
    """Per segment: indices of its input part and its weight part among all parts; one index where it is not split."""
    indices: list[tuple[int, int]] = []
    for segment in graph.segments:
        part_index = indices[-1][1] + 1 if indices else 0
        is_split = segment.backward and bool(segment.gradients) and not segment.weights
        indices.append((part_index, part_index + 1 if is_split else part_index))
    return indices


def _split(
    graph: OperatorGraph, index: int, segment: Segment, input_index: int
) -> tuple[Segment, Segment, dict[int, int]]:
    """The input part and the weight part of a segment, and a map old -> new value number in the input part."""
    input_node_indices = _nodes_computing(segment, _used_elsewhere(graph, index))
    input_nodes = [node for node_index, node in enumerate(segment.nodes) if node_index in input_node_indices]
    weight_nodes = [node for node_index, node in enumerate(segment.nodes) if node_index not in input_node_indices]
    written_values = {value for node in input_nodes for value in _written_values(node)}
    input_part, new_numbers = _segment_part(segment, input_nodes, {}, {})
    values_of_input_part = {
        old: Value(ValueOrigin.SEGMENT, segment.values[old].bytes, segment=-2 - input_index, index=new_numbers[old])
        for old in written_values
        if segment.values[old].origin is ValueOrigin.OWN
    }
    weight_part, _ = _segment_part(
        segment,
        [*weight_nodes, _last_use_of_saved_activations(graph, segment, input_nodes, weight_nodes)],
        values_of_input_part,
        segment.gradients,
    )
    return input_part, msgspec.structs.replace(weight_part, weights=True), new_numbers


def _with_parts(
    graph: OperatorGraph, parts: list[Segment], part_indices: list[tuple[int, int]], new_numbers: list[dict[int, int]]
) -> OperatorGraph:
    """The graph with parts as its segments, and all references to segments and their values renumbered."""

    def moved_value(value: Value) -> Value:
        if value.segment < -1:
            return msgspec.structs.replace(value, segment=-2 - value.segment)
        if value.segment < 0:
            return value
        index = new_numbers[value.segment].get(value.index, value.index)
        return msgspec.structs.replace(value, segment=part_indices[value.segment][0], index=index)

    moved_segments = tuple(
        msgspec.structs.replace(
            segment,
            values=tuple(moved_value(value) for value in segment.values),
            twin=part_indices[segment.twin][0] if segment.twin >= 0 else -1,
        )
        for segment in parts
    )
    parameters = tuple(
        msgspec.structs.replace(parameter, segment=part_indices[parameter.segment][0])
        if parameter.segment >= 0
        else parameter
        for parameter in graph.parameters
    )
    return msgspec.structs.replace(graph, segments=moved_segments, parameters=parameters)


def _with_moved_sums(segment: Segment, sum_locations: dict[tuple[int, int], tuple[int, int]]) -> Segment:
    """The segment with references to moved sums updated."""
    values = []
    for value in segment.values:
        segment_index, value_index = sum_locations.get((value.segment, value.index), (value.segment, value.index))
        values.append(msgspec.structs.replace(value, segment=segment_index, index=value_index))
    return msgspec.structs.replace(segment, values=tuple(values))


def _without_overwriting(
    segment: Segment, needed_values: set[int], index: int, sum_locations: dict[tuple[int, int], tuple[int, int]]
) -> Segment:
    """Move sums to new storages where they would overwrite inputs of later weight gradients."""
    input_node_indices = _nodes_computing(segment, needed_values)
    nodes, values = list(segment.nodes), list(segment.values)
    for node_index in range(len(nodes) - 1, -1, -1):
        node = nodes[node_index]
        if node.operator != "aten::add_" or node_index not in input_node_indices:
            continue
        target = node.inputs[node.written[0]].value
        earlier_weight_nodes = [
            earlier
            for earlier_index, earlier in enumerate(nodes[:node_index])
            if earlier_index not in input_node_indices and not earlier.view
        ]
        if not any(operand.value == target for earlier in earlier_weight_nodes for operand in earlier.inputs):
            continue
        if values[target].segment >= 0:
            sum_locations.setdefault(
                (values[target].segment, values[target].index), (index, target)
            )  # the last sum counts
        values.append(values[target])
        values[target] = Value(ValueOrigin.OWN, values[target].bytes)
        for earlier_index in range(node_index):
            nodes[earlier_index] = _with_value_replaced(nodes[earlier_index], target, len(values) - 1)
        target_operand, *addends = node.inputs
        inputs = (msgspec.structs.replace(target_operand, value=len(values) - 1), *addends)
        nodes[node_index] = msgspec.structs.replace(node, operator="aten::add", inputs=inputs, written=())
    return msgspec.structs.replace(segment, nodes=tuple(nodes), values=tuple(values))


def _with_value_replaced(node: Node, old: int, new: int) -> Node:
    def replace_value(operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
        return tuple(
            msgspec.structs.replace(operand, value=new) if operand.value == old else operand for operand in operands
        )

    return msgspec.structs.replace(node, inputs=replace_value(node.inputs), outputs=replace_value(node.outputs))


def _last_use_of_saved_activations(
    graph: OperatorGraph, segment: Segment, input_nodes: list[Node], weight_nodes: list[Node]
) -> Node:
    """A node without work that marks the last use of saved activations, so that they are freed with the loss."""
    read_by_weight_nodes = {operand.value for node in weight_nodes for operand in node.inputs}
    first_producer = next(
        (node_index for node_index, node in enumerate(input_nodes) if _written_values(node) & read_by_weight_nodes), -1
    )
    later_reads = read_by_weight_nodes | {
        operand.value for node in input_nodes[first_producer + 1 :] for operand in node.inputs
    }
    saved_values = [
        value_index
        for value_index, value in enumerate(segment.values)
        if value.segment >= 0
        and not graph.segments[value.segment].backward
        and (segment.name or value_index in later_reads)
    ]
    return Node("aten::alias", "", tuple(Operand(index, 0, "", 0) for index in saved_values), (), view=True)


def _used_elsewhere(graph: OperatorGraph, index: int) -> set[int]:
    """Values of a segment used by other segments or by its next block."""
    used_values = {
        value.index
        for other_index, segment in enumerate(graph.segments)
        if other_index != index
        for value in segment.values
        if value.segment == index
    }
    return used_values | {value.again for value in graph.segments[index].values if value.again >= 0}


def _written_values(node: Node) -> set[int]:
    """Values that a node writes."""
    written = {node.inputs[position].value for position in node.written}
    if node.operator.startswith("comm::") and not node.outputs:
        written.add(node.inputs[0].value)
    return written | {operand.value for operand in node.outputs}


def _nodes_computing(segment: Segment, values: set[int]) -> set[int]:
    """Indices of the nodes that compute some values, including their inputs."""
    needed_values, node_indices = set(values), set[int]()
    for node_index in range(len(segment.nodes) - 1, -1, -1):
        node = segment.nodes[node_index]
        if _written_values(node) & needed_values:
            node_indices.add(node_index)
            needed_values |= {operand.value for operand in node.inputs}
    return node_indices


def _segment_part(
    segment: Segment, nodes: list[Node], outside_values: dict[int, Value], gradients: dict[str, int]
) -> tuple[Segment, dict[int, int]]:
    """A segment of some nodes, and a map old -> new value number; values in ``outside_values`` come from elsewhere."""
    touched_values = {operand.value for node in nodes for operand in (*node.inputs, *node.outputs)}
    carried_values = {
        value.again for old, value in enumerate(segment.values) if old in touched_values and value.again >= 0
    }
    used_values = sorted(touched_values | set(gradients.values()) | carried_values)
    new_numbers = {old: new for new, old in enumerate(used_values)}

    def value_of(old: int) -> Value:
        value = outside_values.get(old, segment.values[old])
        if value.again < 0:
            return value
        return msgspec.structs.replace(value, again=new_numbers.get(value.again, -1))

    renumbered_nodes = tuple(
        msgspec.structs.replace(
            node,
            inputs=tuple(msgspec.structs.replace(operand, value=new_numbers[operand.value]) for operand in node.inputs),
            outputs=tuple(
                msgspec.structs.replace(operand, value=new_numbers[operand.value]) for operand in node.outputs
            ),
        )
        for node in nodes
    )
    renumbered_gradients = {name: new_numbers[index] for name, index in gradients.items()}
    values = tuple(value_of(old) for old in used_values)
    return msgspec.structs.replace(
        segment, values=values, nodes=renumbered_nodes, gradients=renumbered_gradients
    ), new_numbers
