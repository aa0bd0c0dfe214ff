"""The forward pass of a graph alone, for passes that are of inference."""

from __future__ import annotations

import msgspec

from presim.graph.schema import OperatorGraph


def forward(graph: OperatorGraph) -> OperatorGraph:
    """The segments before the first of the backward pass: they use nothing of it."""
    return msgspec.structs.replace(graph, segments=tuple(segment for segment in graph.segments if not segment.backward))
