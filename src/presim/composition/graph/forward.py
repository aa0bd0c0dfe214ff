"""The forward pass of a graph, for graph passes of inference."""

from __future__ import annotations

import msgspec

from presim.composition.graph.graph_schema import OperatorGraph


def forward(graph: OperatorGraph) -> OperatorGraph:
    """The graph without its backward segments; forward segments do not depend on them."""
    return msgspec.structs.replace(graph, segments=tuple(segment for segment in graph.segments if not segment.backward))
