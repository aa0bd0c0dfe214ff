"""Split backward passes for zero-bubble schedules.

Input gradients, which the previous stage needs, and weight gradients.

Each backward segment becomes two segments that run block by block: the first computes what other segments need, the
second the rest. As in PyTorch, saved activations are kept until the second has run.
"""

from __future__ import annotations

import msgspec

from presim.graph.schema import Node, Operand, OperatorGraph, Origin, Segment, Value


def apply(graph: OperatorGraph) -> OperatorGraph:
    """The graph with each backward segment that computes parameter gradients split in two."""
    places: list[tuple[int, int]] = []  # per segment: indices of its input part and its weight part
    for segment in graph.segments:
        place = places[-1][1] + 1 if places else 0
        is_split = segment.backward and bool(segment.gradients) and not segment.weights
        places.append((place, place + 1 if is_split else place))
    found: list[Segment] = []
    numbers: list[dict[int, int]] = []  # per segment: old -> new value number in the input part
    summed: dict[tuple[int, int], tuple[int, int]] = {}  # in-place sum -> its new location
    for index, segment in enumerate(graph.segments):
        first, second = places[index]
        if first == second:
            found.append(segment)
            numbers.append({number: number for number in range(len(segment.values))})
            continue
        segment = _without_overwriting(_following(segment, summed), _used_elsewhere(graph, index), index, summed)
        chosen = _needed(segment, _used_elsewhere(graph, index))
        inputs = [node for place, node in enumerate(segment.nodes) if place in chosen]
        weights = [node for place, node in enumerate(segment.nodes) if place not in chosen]
        made = {value for node in inputs for value in _touched(node)}
        part, moved = _part(segment, inputs, {}, {})
        beside = {
            old: Value(Origin.SEGMENT, segment.values[old].bytes, segment=-2 - first, index=moved[old])
            for old in made
            if segment.values[old].origin is Origin.OWN
        }
        rest, _ = _part(segment, [*weights, _retained(graph, segment, inputs, weights)], beside, segment.gradients)
        found += [part, msgspec.structs.replace(rest, weights=True)]
        numbers.append(moved)

    def of(value: Value) -> Value:
        again = value.again
        if value.segment < -1:
            return msgspec.structs.replace(value, segment=-2 - value.segment)
        if value.segment < 0:
            return value
        index = numbers[value.segment].get(value.index, value.index)
        return msgspec.structs.replace(value, segment=places[value.segment][0], index=index, again=again)

    moved_segments = tuple(
        msgspec.structs.replace(
            segment,
            values=tuple(of(value) for value in segment.values),
            twin=places[segment.twin][0] if segment.twin >= 0 else -1,
        )
        for segment in found
    )
    parameters = tuple(
        msgspec.structs.replace(one, segment=places[one.segment][0]) if one.segment >= 0 else one
        for one in graph.parameters
    )
    return msgspec.structs.replace(graph, segments=moved_segments, parameters=parameters)


def _following(segment: Segment, summed: dict[tuple[int, int], tuple[int, int]]) -> Segment:
    """The segment with references to moved sums updated."""
    values = []
    for value in segment.values:
        there, index = summed.get((value.segment, value.index), (value.segment, value.index))
        values.append(msgspec.structs.replace(value, segment=there, index=index))
    return msgspec.structs.replace(segment, values=tuple(values))


def _without_overwriting(
    segment: Segment, wanted: set[int], index: int, summed: dict[tuple[int, int], tuple[int, int]]
) -> Segment:
    """Move sums to new storages where they would overwrite inputs of later weight gradients."""
    chosen = _needed(segment, wanted)
    nodes, values = list(segment.nodes), list(segment.values)
    for place in range(len(nodes) - 1, -1, -1):
        node = nodes[place]
        if node.operator != "aten::add_" or place not in chosen:
            continue
        target = node.inputs[node.written[0]].value
        late = [other for at, other in enumerate(nodes[:place]) if at not in chosen and not other.view]
        if not any(one.value == target for other in late for one in other.inputs):
            continue
        if values[target].segment >= 0:
            summed.setdefault((values[target].segment, values[target].index), (index, target))  # the last sum counts
        values.append(values[target])
        values[target] = Value(Origin.OWN, values[target].bytes)
        for at in range(place):
            nodes[at] = _renamed(nodes[at], target, len(values) - 1)
        first, *others = node.inputs
        inputs = (msgspec.structs.replace(first, value=len(values) - 1), *others)
        nodes[place] = msgspec.structs.replace(node, operator="aten::add", inputs=inputs, written=())
    return msgspec.structs.replace(segment, nodes=tuple(nodes), values=tuple(values))


def _renamed(node: Node, old: int, new: int) -> Node:
    def of(operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
        return tuple(msgspec.structs.replace(one, value=new) if one.value == old else one for one in operands)

    return msgspec.structs.replace(node, inputs=of(node.inputs), outputs=of(node.outputs))


def _retained(graph: OperatorGraph, segment: Segment, inputs: list[Node], weights: list[Node]) -> Node:
    """A node without work that marks the last use of saved activations, so that they are freed with the loss."""
    wanted = {operand.value for node in weights for operand in node.inputs}
    before = next((place for place, node in enumerate(inputs) if _touched(node) & wanted), -1)
    later = wanted | {operand.value for node in inputs[before + 1 :] for operand in node.inputs}
    saved = [
        index
        for index, value in enumerate(segment.values)
        if value.segment >= 0 and not graph.segments[value.segment].backward and (segment.name or index in later)
    ]
    return Node("aten::alias", "", tuple(Operand(index, 0, "", 0) for index in saved), (), view=True)


def _used_elsewhere(graph: OperatorGraph, index: int) -> set[int]:
    """Values of a segment used by other segments or by its next block."""
    used = {
        value.index
        for place, segment in enumerate(graph.segments)
        if place != index
        for value in segment.values
        if value.segment == index
    }
    return used | {value.again for value in graph.segments[index].values if value.again >= 0}


def _touched(node: Node) -> set[int]:
    """Values that a node writes."""
    changed = {node.inputs[place].value for place in node.written}
    if node.operator.startswith("comm::") and not node.outputs:
        changed.add(node.inputs[0].value)
    return changed | {operand.value for operand in node.outputs}


def _needed(segment: Segment, wanted: set[int]) -> set[int]:
    """Indices of the nodes that compute some values, including their inputs."""
    needed, places = set(wanted), set[int]()
    for place in range(len(segment.nodes) - 1, -1, -1):
        node = segment.nodes[place]
        if _touched(node) & needed:
            places.add(place)
            needed |= {operand.value for operand in node.inputs}
    return places


def _part(
    segment: Segment, nodes: list[Node], beside: dict[int, Value], gradients: dict[str, int]
) -> tuple[Segment, dict[int, int]]:
    """A segment of some nodes, and a map old -> new value number; values in ``beside`` come from elsewhere."""
    touched = {operand.value for node in nodes for operand in (*node.inputs, *node.outputs)}
    again = {value.again for old, value in enumerate(segment.values) if old in touched and value.again >= 0}
    used = sorted(touched | set(gradients.values()) | again)
    numbers = {old: new for new, old in enumerate(used)}

    def value_of(old: int) -> Value:
        value = beside.get(old, segment.values[old])
        if value.again < 0:
            return value
        return msgspec.structs.replace(value, again=numbers.get(value.again, -1))

    moved = tuple(
        msgspec.structs.replace(
            node,
            inputs=tuple(msgspec.structs.replace(one, value=numbers[one.value]) for one in node.inputs),
            outputs=tuple(msgspec.structs.replace(one, value=numbers[one.value]) for one in node.outputs),
        )
        for node in nodes
    )
    made = {name: numbers[index] for name, index in gradients.items()}
    values = tuple(value_of(old) for old in used)
    return msgspec.structs.replace(segment, values=values, nodes=moved, gradients=made), numbers
