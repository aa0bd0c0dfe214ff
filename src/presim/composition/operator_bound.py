"""Roofline lower bound of an operator's time, used to weigh choices before pricing."""

from __future__ import annotations

from collections.abc import Callable

from presim.composition.graph.graph_schema import Node, OperatorGraph
from presim.composition.graph.works import Sizes, works
from presim.hardware.gpu_schema import Gpu

_LAUNCH_S = 1e-6  # tie-breaker: prefers fewer kernels


def roofline(graph: OperatorGraph, gpu: Gpu, batch: int, sequence: int) -> Callable[[Node], float]:
    """Seconds of an operator: its FLOPs at the peak of its type, or its bytes at the memory's bandwidth."""
    sizes = Sizes(graph, batch, sequence)

    def cost(node: Node) -> float:
        seconds = 0.0
        for _, signature in works(node, sizes):
            peak = gpu.peak(getattr(signature, "dtype", "")) if signature.flops else None
            memory_seconds = getattr(signature, "bytes", 0) / gpu.memory_bytes_per_s
            seconds += max(signature.flops / peak if peak else 0.0, memory_seconds, _LAUNCH_S)
        return seconds

    return cost
