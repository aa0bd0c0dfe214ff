"""Split the code before the blocks in two: positions and masks, which every stage computes itself, and the rest."""

from __future__ import annotations

import msgspec

from presim.graph.schema import Node, Operand, OperatorGraph, Origin, Segment, Value


def apply(graph: OperatorGraph) -> OperatorGraph:
    """The graph with the shared segment first; unchanged if blocks use no such values."""
    if not graph.segments or graph.segments[0].name or graph.segments[0].backward or graph.segments[0].shared:
        return graph
    root = graph.segments[0]
    wanted = _made_of_inputs(root) & _used_by_blocks(graph)
    nodes = _makers(root, wanted)
    if not nodes:
        return graph
    shared, moved = _part(root, [node for place, node in enumerate(root.nodes) if place in nodes], {})
    beside = {old: Value(Origin.SEGMENT, root.values[old].bytes, segment=0, index=new) for old, new in moved.items()}
    beside = {old: value for old, value in beside.items() if root.values[old].origin is Origin.OWN}
    rest, kept = _part(root, [node for place, node in enumerate(root.nodes) if place not in nodes], beside)
    gradients = {name: kept[index] for name, index in root.gradients.items()}
    both = (
        msgspec.structs.replace(shared, shared=True),
        msgspec.structs.replace(rest, gradients=gradients),
    )

    def of(value: Value) -> Value:
        if value.segment < 0:
            return value
        if value.segment > 0:
            return msgspec.structs.replace(value, segment=value.segment + 1)
        is_shared = value.index in beside
        return msgspec.structs.replace(
            value, segment=0 if is_shared else 1, index=(moved if is_shared else kept)[value.index]
        )

    others = tuple(
        msgspec.structs.replace(
            segment,
            values=tuple(of(value) for value in segment.values),
            twin=segment.twin + 1 if segment.twin >= 0 else -1,
        )
        for segment in graph.segments[1:]
    )
    parameters = tuple(
        msgspec.structs.replace(one, segment=one.segment + 1 if one.segment >= 0 else -1) for one in graph.parameters
    )
    return msgspec.structs.replace(graph, segments=(*both, *others), parameters=parameters)


def _made_of_inputs(root: Segment) -> set[int]:
    """Values that do not depend on parameters."""
    tainted = {index for index, value in enumerate(root.values) if value.origin is Origin.PARAMETER}
    for node in root.nodes:
        if any(operand.value in tainted for operand in node.inputs):
            tainted |= {operand.value for operand in node.outputs}
            tainted |= {node.inputs[place].value for place in node.written}
    return {index for index, value in enumerate(root.values) if value.origin is Origin.OWN} - tainted


def _used_by_blocks(graph: OperatorGraph) -> set[int]:
    return {
        value.index
        for segment in graph.segments[1:]
        if segment.name
        for value in segment.values
        if value.segment == 0 and value.origin in (Origin.SEGMENT, Origin.CARRY)
    }


def _makers(root: Segment, wanted: set[int]) -> set[int]:
    """Indices of the nodes that compute values, including their inputs."""
    needed, places = set(wanted), set[int]()
    for place in range(len(root.nodes) - 1, -1, -1):
        node = root.nodes[place]
        touched = {operand.value for operand in node.outputs} | {node.inputs[index].value for index in node.written}
        if touched & needed:
            places.add(place)
            needed |= {operand.value for operand in node.inputs}
    return places


def _part(root: Segment, nodes: list[Node], beside: dict[int, Value]) -> tuple[Segment, dict[int, int]]:
    """A segment of some nodes, and a map old -> new value number; values in ``beside`` come from elsewhere."""
    used = sorted({operand.value for node in nodes for operand in (*node.inputs, *node.outputs)})
    numbers = {old: new for new, old in enumerate(used)}

    def renamed(operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
        return tuple(msgspec.structs.replace(one, value=numbers[one.value]) for one in operands)

    values = tuple(beside.get(old, root.values[old]) for old in used)
    moved = tuple(
        msgspec.structs.replace(node, inputs=renamed(node.inputs), outputs=renamed(node.outputs)) for node in nodes
    )
    return msgspec.structs.replace(root, values=values, nodes=moved, gradients={}), numbers
