"""Kernel fusion: neighbouring memory-bound operators become one kernel that moves each tensor once.

A fused operator reads the tensors produced outside of it and writes the tensors used outside of it. Matrix products,
attention, copies, communication and indexing are not fused, so FLOPs are conserved and bytes do not grow. Inner values
that the backward pass needs are still written, as in the fused kernels of eager frameworks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from presim.graph.schema import Node, Operand, OperatorGraph, Origin, Segment
from presim.graph.sizes import read
from presim.trace.dtypes import dtype_bytes

PREFIX = "fused::"
_ROTARY = ("aten::mul", "aten::neg", "aten::cat", "aten::add", "aten::add_", "aten::clone", "aten::slice_backward")
_ACTIVATION = ("silu", "gelu", "relu", "sigmoid", "tanh", "mul")
_LOSS = ("log_softmax", "nll_loss", "_to_copy")
_APART = (  # never fused: indexing, scans, joins, values read by the host, pure allocations
    "aten::embedding", "aten::gather", "aten::scatter", "aten::index", "aten::sort", "aten::topk", "aten::cumsum",
    "aten::cat", "aten::stack", "aten::histc", "aten::_local_scalar_dense", "aten::empty", "aten::new_empty",
    "aten::copy_", "aten::native_dropout", "aten::arange", "aten::convolution", "aten::slice_backward",
    "aten::select_backward", "aten::constant_pad_nd", "aten::set_",
)  # fmt: skip
_WITH_FLOPS = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::_grouped_mm", "aten::_scaled")


def norm(graph: OperatorGraph) -> OperatorGraph:
    """Fuse each normalization module (RMSNorm, LayerNorm) into one kernel per direction."""
    return fuse(graph, "norm", lambda node: _bounded(node) and "norm" in _module(node))


def rotary(graph: OperatorGraph) -> OperatorGraph:
    """Fuse each run of rotary-embedding operators in attention modules."""
    return fuse(graph, "rotary", lambda node: node.operator in _ROTARY and "attn" in _module(node))


def activation(graph: OperatorGraph) -> OperatorGraph:
    """Fuse an activation and its gate (SwiGLU, GeGLU) into one kernel per direction."""
    return fuse(graph, "activation", lambda node: _bounded(node) and _any(_ACTIVATION, node) and "mlp" in node.scope)


def cross_entropy(graph: OperatorGraph) -> OperatorGraph:
    """Fuse the cast of logits, softmax and loss into one kernel, and the gradient into another."""
    return fuse(graph, "cross_entropy", lambda node: _any(_LOSS, node) and not node.scope)


def pointwise(graph: OperatorGraph) -> OperatorGraph:
    """Fuse like a pointwise compiler: neighbours over the same number of elements, including reductions."""
    return fuse(graph, "pointwise", _bounded, same_size=True)


def fuse(graph: OperatorGraph, name: str, belongs: Callable[[Node], bool], *, same_size: bool = False) -> OperatorGraph:
    """Fuse each run of neighbouring nodes that satisfy ``belongs`` into ``fused::name``.

    ``same_size``: fuse only nodes with equally large tensors. Views do not interrupt a run.
    """
    used = _used_elsewhere(graph)
    batch, sequence = graph.traced["batch"], graph.traced["sequence"]
    elements = []
    for shape in graph.shapes:
        whole = 1
        for size in shape:
            whole *= read(size)(batch, sequence)
        elements.append(whole)

    def largest(node: Node) -> int:
        return max((elements[one.shape] for one in (*node.inputs, *node.outputs)), default=0)

    segments = []
    for index, segment in enumerate(graph.segments):
        nodes: list[Node] = []
        run: list[Node] = []
        for node in segment.nodes:
            fits = not run or not same_size or largest(node) == largest(run[0])
            if (run and node.view) or (belongs(node) and fits):
                run.append(node)
            else:
                nodes += _closed(run, segment, name, (batch, sequence), used[index], elements)
                run = [node] if belongs(node) else []
                nodes += [] if run else [node]
        nodes += _closed(run, segment, name, (batch, sequence), used[index], elements)
        segments.append(msgspec.structs.replace(segment, nodes=tuple(_alive(nodes, segment, used[index]))))
    return msgspec.structs.replace(graph, segments=tuple(segments))


def _closed(
    run: list[Node],
    segment: Segment,
    name: str,
    traced: tuple[int, int],
    used: set[int],
    elements: list[int],
) -> list[Node]:
    """A run as one node followed by its views; unchanged if there is nothing to fuse."""
    work = [node for node in run if not node.view]
    if len(work) < 2:
        return run
    after = _later(segment, work[-1])
    wholes = [read(value.bytes)(*traced) for value in segment.values]
    made: dict[int, Operand] = {}
    taken: dict[int, list[Operand]] = {}
    for node in work:
        written = {node.inputs[place].value for place in node.written}
        for operand in node.inputs:
            if operand.value not in made:
                _read(taken, operand, elements, wholes[operand.value])
            if operand.value in written:
                _largest(made, operand, elements)
        for operand in node.outputs:
            _largest(made, operand, elements)
    outputs = tuple(operand for value, operand in made.items() if value in used or value in after)
    views = [node for node in run if node.view]
    inputs = tuple(operand for parts in taken.values() for operand in parts)
    fused = Node(f"{PREFIX}{name}", work[0].scope, inputs, outputs)
    return [fused, *views]


def _later(segment: Segment, last: Node) -> set[int]:
    """Values used by the nodes after ``last``."""
    place = max(index for index, node in enumerate(segment.nodes) if node is last)
    return {one.value for node in segment.nodes[place + 1 :] if not node.view for one in node.inputs}


def _alive(nodes: Iterable[Node], segment: Segment, used: set[int]) -> list[Node]:
    """Nodes without views of values that no node writes any more."""
    made = {one.value for node in nodes if not node.view for one in (*node.inputs, *node.outputs)} | used
    own = {index for index, value in enumerate(segment.values) if value.origin is Origin.OWN}
    return [
        node
        for node in nodes
        if not (node.view and any(one.value in own - made for one in (*node.inputs, *node.outputs)))
    ]


def _used_elsewhere(graph: OperatorGraph) -> list[set[int]]:
    """Per segment.

    Values used by other segments, passed to the next block, returned as gradients, or given from before.
    """
    used = [set(segment.gradients.values()) for segment in graph.segments]
    for index, segment in enumerate(graph.segments):
        for place, value in enumerate(segment.values):
            if value.origin is not Origin.OWN:
                used[index].add(place)
            if value.origin in (Origin.SEGMENT, Origin.CARRY):
                used[value.segment].add(value.index)
            if value.origin is Origin.CARRY:
                used[index].add(value.again)
    return used


def _read(taken: dict[int, list[Operand]], operand: Operand, elements: list[int], whole: int) -> None:
    """Count reads of tensor parts; if the parts together exceed the whole tensor, count the largest instead."""
    parts = taken.setdefault(operand.value, [])
    sizes = [elements[one.shape] * dtype_bytes(one.dtype) for one in (*parts, operand)]
    if sum(sizes) <= whole:
        parts.append(operand)
    elif not parts or sizes[-1] > max(sizes[:-1]):
        parts[:] = [operand]


def _largest(found: dict[int, Operand], operand: Operand, elements: list[int]) -> None:
    before = found.get(operand.value)
    if before is None or elements[operand.shape] > elements[before.shape]:
        found[operand.value] = operand


def _bounded(node: Node) -> bool:
    return not node.view and not node.operator.startswith(("comm::", PREFIX, *_WITH_FLOPS, *_APART))


def _any(words: Iterable[str], node: Node) -> bool:
    return not node.view and any(word in node.operator for word in words)


def _module(node: Node) -> str:
    return node.scope.rstrip(".").rpartition(".")[2]
