"""Select the attention backend: each library's kernels have their own prices."""

from __future__ import annotations

import msgspec

from presim.composition.graph.graph_schema import Node, OperatorGraph, Segment

OPERATORS = ("aten::_scaled_dot_product_cudnn_attention", "aten::_scaled_dot_product_cudnn_attention_backward")


def apply(graph: OperatorGraph, backend: str) -> OperatorGraph:
    """The graph with one backend (cudnn, flash or flex) for all attention operators."""
    return msgspec.structs.replace(graph, segments=tuple(_segment(segment, backend) for segment in graph.segments))


def _segment(segment: Segment, backend: str) -> Segment:
    return msgspec.structs.replace(segment, nodes=tuple(_node(node, backend) for node in segment.nodes))


def _node(node: Node, backend: str) -> Node:
    if node.operator not in OPERATORS:
        return node
    return msgspec.structs.replace(node, attributes={**node.attributes, "backend": backend})
