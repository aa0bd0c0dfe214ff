"""Turn functions under ``torch.compile`` into fused kernels; the exporter marks their operators.

Each consecutive run of a function's operators becomes one kernel. An indexed assignment is a separate kernel that
writes to a copy of the tensor, because the compiler writes nothing in place before the end. Later operators read the
copy.
"""

from __future__ import annotations

import msgspec

from presim.composition.graph.graph_schema import Node, OperatorGraph, Segment, Value, ValueOrigin
from presim.composition.passes.fusion import PREFIX, fuse

ATTRIBUTE = "compiled"  # name of the function
_APART = ("comm::", "aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::_scaled")
_ASSIGNMENTS = ("aten::index_put_", "aten::_index_put_impl_")


def apply(graph: OperatorGraph) -> OperatorGraph:
    """The graph with compiled functions replaced by kernels; unchanged if there are none."""
    names = {
        str(node.attributes[ATTRIBUTE]) for segment in graph.segments for node in segment.nodes if _is_marked(node)
    }
    if not names:
        return graph
    graph = msgspec.structs.replace(graph, segments=tuple(map(_with_copies, graph.segments)))
    for name in sorted(names):
        graph = fuse(graph, name, lambda node, name=name: _is_marked(node) and node.attributes[ATTRIBUTE] == name)  # type: ignore[misc]
    return graph


def _is_marked(node: Node) -> bool:
    return not node.view and ATTRIBUTE in node.attributes and not node.operator.startswith(_APART)


def _with_copies(segment: Segment) -> Segment:
    """Redirect indexed assignments to copies."""
    if not any(_is_marked(node) and node.operator in _ASSIGNMENTS for node in segment.nodes):
        return segment
    values, nodes = list(segment.values), list[Node]()
    copies: dict[int, tuple[int, str]] = {}  # value -> (its copy, compiled function that wrote it)
    for node in segment.nodes:
        if not node.view:
            copy_numbers = {
                original: copy_value
                for original, (copy_value, name) in copies.items()
                if node.attributes.get(ATTRIBUTE) == name
            }
            node = msgspec.structs.replace(
                node,
                inputs=tuple(
                    msgspec.structs.replace(operand, value=copy_numbers.get(operand.value, operand.value))
                    for operand in node.inputs
                ),
                written=()
                if any(node.inputs[position].value in copy_numbers for position in node.written)
                else node.written,
            )
        if not (_is_marked(node) and node.operator in _ASSIGNMENTS):
            nodes.append(node)
            continue
        target = node.inputs[node.written[0]]
        values.append(Value(ValueOrigin.OWN, values[target.value].bytes))
        copy = msgspec.structs.replace(target, value=len(values) - 1)
        name = str(node.attributes[ATTRIBUTE])
        copies[target.value] = copy.value, name
        nodes.append(Node(f"{PREFIX}{name}", node.scope, (target,), (copy,)))
        nodes.append(Node(f"{PREFIX}{name}", node.scope, (copy, *node.inputs[1:]), (copy,)))
    return msgspec.structs.replace(segment, values=tuple(values), nodes=tuple(nodes))
