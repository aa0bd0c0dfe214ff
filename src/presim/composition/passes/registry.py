"""Look up passes by name: presim's own, those of installed packages (entry points ``presim.passes``), user functions.

A pass takes an `OperatorGraph` and returns another. After each pass, the graph is checked and the change is reported.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import TypeAlias

from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.graph.works import Sizes, works
from presim.composition.passes import (
    collective_order,
    collective_split,
    fusion,
    quantisation,
    selective,
    sparse_weights,
    weight_only,
)
from presim.composition.passes.graph_invariants import check
from presim.errors import InputError

Pass: TypeAlias = Callable[[OperatorGraph], OperatorGraph]
GROUP = "presim.passes"
_BUILT_IN: dict[str, Pass] = {
    "fuse-norm": fusion.norm,
    "fuse-rotary": fusion.rotary,
    "fuse-activation": fusion.activation,
    "fuse-cross-entropy": fusion.cross_entropy,
    "fuse-pointwise": fusion.pointwise,
    "recompute-selective": selective.recompute,
    collective_order.NAME: collective_order.apply,
    **collective_split.passes(),
    **quantisation.passes(),
    sparse_weights.NAME: sparse_weights.apply,
    weight_only.NAME: weight_only.apply,
}
_PACKS = (weight_only.NAME,)  # passes that store parameters in fewer bytes


def apply(graph: OperatorGraph, names: Sequence[str], batch: int, sequence: int) -> tuple[OperatorGraph, list[str]]:
    """Apply passes in order; returns the graph and one sentence per pass.

    Raises:
        InputError: a pass does not exist, fails, or returns an invalid graph.
    """
    sentences = []
    for name in names:
        changed = _run(name, find(name), graph)
        check(changed, graph, name, packs=name in _PACKS)
        sentences.append(_sentence(name, _totals(graph, batch, sequence), _totals(changed, batch, sequence)))
        graph = changed
    return graph, sentences


def names() -> tuple[str, ...]:
    """Names of all known passes."""
    return (*_BUILT_IN, *sorted(entry_point.name for entry_point in _installed() if entry_point.name not in _BUILT_IN))


def find(name: str) -> Pass:
    """Look up a pass by name or by ``package.module:function``.

    Raises:
        InputError: the pass does not exist.
    """
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    for entry_point in _installed():
        if entry_point.name == name:
            return _loaded(name, entry_point.load)
    module, colon, function = name.partition(":")
    if not colon:
        raise InputError(f"{name} is not a pass: use one of {', '.join(names())}, or package.module:function")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return _loaded(name, lambda: getattr(importlib.import_module(module), function))


@functools.cache
def _installed() -> tuple[metadata.EntryPoint, ...]:
    return tuple(metadata.entry_points(group=GROUP))


def _loaded(name: str, load: Callable[[], Pass]) -> Pass:
    try:
        return load()
    except (ImportError, AttributeError) as error:
        raise InputError(f"the pass {name} cannot be loaded: {error}; correct its name or its package") from error


def _run(name: str, function: Pass, graph: OperatorGraph) -> OperatorGraph:
    try:
        changed = function(graph)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"the pass {name} raised {type(error).__name__}: {error}; correct it") from error
    if not isinstance(changed, OperatorGraph):
        raise InputError(f"the pass {name} returned {type(changed).__name__}, not an OperatorGraph; correct it")
    return changed


def _totals(graph: OperatorGraph, batch: int, sequence: int) -> tuple[int, int, int]:
    """(FLOPs, bytes moved by memory-bound kernels, number of kernels) of one micro-batch."""
    sizes = Sizes(graph, batch, sequence)
    flops = moved_bytes = kernels = 0
    for segment in graph.segments:
        for node in segment.nodes:
            for _, signature in works(node, sizes):
                flops += signature.flops * segment.count
                moved_bytes += int(getattr(signature, "bytes", 0)) * segment.count
                kernels += segment.count
    return flops, moved_bytes, kernels


def _sentence(name: str, before: tuple[int, int, int], after: tuple[int, int, int]) -> str:
    flops = "unchanged" if before[0] == after[0] else f"{before[0] / 1e12:,.3f} to {after[0] / 1e12:,.3f} TFLOP"
    return (
        f"Pass {name}, forward and backward of one micro-batch: {before[2]:,} to {after[2]:,} kernels, "
        f"{before[1] / 1e9:,.1f} to {after[1] / 1e9:,.1f} GB moved by memory-bound kernels, FLOPs {flops}."
    )
