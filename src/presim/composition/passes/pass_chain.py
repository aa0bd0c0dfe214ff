"""Run passes one after the other, and check each as soon as it has run."""

from __future__ import annotations

from collections.abc import Callable

from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.graph.works import COUNTED, Sizes, works
from presim.composition.passes.graph_invariants import check
from presim.errors import InputError

_ROUNDING = 0.05  # tolerance: a causal mask counts half of the diagonal, whose share differs in a part of the sequence


class PassChain:
    """A graph with the passes applied so far."""

    def __init__(self, graph: OperatorGraph, batch: int, sequence: int) -> None:
        self.graph = graph
        self._size = (batch, sequence)
        self._flops: int | None = None  # FLOPs of matrix products and attention per micro-batch; None: not counted yet

    def step(
        self,
        name: str,
        function: Callable[[OperatorGraph], OperatorGraph],
        *,
        ranks: int = 1,
        parts: int = 1,
        adds: bool = False,
        load: float = 1.0,
    ) -> None:
        """Run a pass and check its result.

        ``ranks``: number of ranks that share the work; ``parts``: number of parts of the sequence; ``adds``: whether
        the pass may repeat work; ``load``: of the rank with the most work, relative to an even share.

        Raises:
            InputError: the pass rejects the graph or returns an invalid one.
        """
        before = self.graph
        changed = function(before)
        if changed is before:
            return
        check(changed, before, name, shares=ranks)
        flops = self._flops if self._flops is not None else matrix_flops(before, *self._size)
        self._size = (self._size[0], self._size[1] // parts)
        changed_flops = matrix_flops(changed, *self._size)
        _check_flops(name, flops, changed_flops, ranks, adds, load)
        self.graph, self._flops = changed, changed_flops


def matrix_flops(graph: OperatorGraph, batch: int, sequence: int) -> int:
    """FLOPs of matrix products and attention in one micro-batch, forward and backward."""
    sizes = Sizes(graph, batch, sequence)
    return sum(
        signature.flops * segment.count
        for segment in graph.segments
        for node in segment.nodes
        if node.operator in COUNTED
        for _, signature in works(node, sizes)
    )


def _check_flops(name: str, before: int, after: int, ranks: int, adds: bool, load: float) -> None:
    """Check that each rank does between its share and all of the work; up to twice that if work may be repeated."""
    min_flops, max_flops = before / ranks * (1 - _ROUNDING) * min(load, 1.0), before * (1 + _ROUNDING) * max(load, 1.0)
    if ranks == 1:
        min_flops, max_flops = before, before * (2 if adds else 1)
    if not min_flops <= after <= max_flops:
        part = f" on each of {ranks} ranks" if ranks > 1 else ""
        raise InputError(
            f"the pass {name} changed the FLOPs of products and attention from {before:,} to {after:,}{part}; correct "
            "the pass, FLOPs must stay the same"
        )
