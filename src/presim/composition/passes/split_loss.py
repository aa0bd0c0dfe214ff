"""The loss over a vocabulary split between ranks, kernel by kernel, as PyTorch's ``loss_parallel`` runs it.

Softmax is several kernels there, because ranks reduce the largest logit and the sum of exponentials in between
(torch/distributed/tensor/parallel/loss.py).
"""

from __future__ import annotations

import msgspec

from presim.composition.graph.graph_schema import Node, Operand, OperatorGraph, Segment, Value, ValueOrigin
from presim.composition.passes.collective_names import ALL_REDUCE

_FORWARD, _BACKWARD = "aten::_log_softmax", "aten::_log_softmax_backward_data"


def apply(graph: OperatorGraph) -> OperatorGraph:
    """The graph with the loss expanded into kernels; unchanged if no softmax is followed by a reduction."""
    is_split = any(
        node.operator == _FORWARD and after.operator == ALL_REDUCE
        for segment in graph.segments
        for node, after in zip(segment.nodes, segment.nodes[1:])
    )
    if not is_split:
        return graph
    return msgspec.structs.replace(graph, segments=tuple(map(_split_segment, graph.segments)))


def _split_segment(segment: Segment) -> Segment:
    values, nodes = list(segment.values), list[Node]()
    remaining_nodes = list(segment.nodes)
    while remaining_nodes:
        node = remaining_nodes.pop(0)
        if node.operator == _FORWARD:
            largest, total = remaining_nodes[:2], remaining_nodes[2:4]  # each is a reduction and its wait
            del remaining_nodes[:4]
            nodes += _forward(node, largest, total, values)
        elif node.operator == _BACKWARD:
            nodes += _backward(node, values)
        else:
            nodes.append(node)
    return msgspec.structs.replace(segment, values=tuple(values), nodes=tuple(nodes))


def _forward(node: Node, largest: list[Node], total: list[Node], values: list[Value]) -> list[Node]:
    (logits, *_), (out, *_) = node.inputs, node.outputs
    shifted, powers = _like(out, values), _like(out, values)
    largest_logit, exponential_sum = largest[0].inputs[0], total[0].inputs[0]
    return [
        Node("aten::amax", node.scope, (logits,), (largest_logit,)),
        *largest,
        Node("aten::sub", node.scope, (logits, largest_logit), (shifted,)),
        Node("aten::exp", node.scope, (shifted,), (powers,)),
        Node("aten::sum", node.scope, (powers,), (exponential_sum,)),
        *total,
        Node("aten::sub", node.scope, (shifted, exponential_sum), (out,)),
    ]


def _backward(node: Node, values: list[Value]) -> list[Node]:
    (gradient, logs, *_), (out, *_) = node.inputs, node.outputs
    powers, scaled = _like(out, values), _like(out, values)
    return [
        Node("aten::exp", node.scope, (logs,), (powers,)),
        Node("aten::mul", node.scope, (powers,), (scaled,)),
        Node("aten::add", node.scope, (gradient, scaled), (out,)),
        Node("aten::alias", node.scope, (logs,), (), view=True),  # autograd keeps the tensor alive until here
    ]


def _like(operand: Operand, values: list[Value]) -> Operand:
    values.append(Value(ValueOrigin.OWN, values[operand.value].bytes))
    return msgspec.structs.replace(operand, value=len(values) - 1)
