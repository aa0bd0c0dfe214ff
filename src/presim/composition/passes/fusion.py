"""Kernel fusion: neighbouring memory-bound operators become one kernel that moves each tensor once.

A fused operator reads the tensors produced outside of it and writes the tensors used outside of it. Matrix products,
attention, copies, communication and indexing are not fused, so FLOPs are conserved and bytes do not grow. Inner values
that the backward pass needs are still written, as in the fused kernels of eager frameworks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from presim.composition.graph.graph_schema import Node, Operand, OperatorGraph, Segment, ValueOrigin
from presim.composition.graph.sizes import read
from presim.trace.dtypes import dtype_bytes

PREFIX = "fused::"
_ROTARY = ("aten::mul", "aten::neg", "aten::cat", "aten::add", "aten::add_", "aten::clone", "aten::slice_backward")
_ACTIVATION = ("silu", "gelu", "relu", "sigmoid", "tanh", "mul")
_LOSS = ("log_softmax", "nll_loss", "_to_copy")
_NEVER_FUSED = (  # never fused: indexing, scans, joins, values read by the host, pure allocations
    "aten::embedding", "aten::gather", "aten::scatter", "aten::index", "aten::sort", "aten::topk", "aten::cumsum",
    "aten::cat", "aten::stack", "aten::histc", "aten::_local_scalar_dense", "aten::empty", "aten::new_empty",
    "aten::copy_", "aten::native_dropout", "aten::arange", "aten::convolution", "aten::slice_backward",
    "aten::select_backward", "aten::constant_pad_nd", "aten::set_",
)  # fmt: skip
_WITH_FLOPS = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::_grouped_mm", "aten::_scaled")


def norm(graph: OperatorGraph) -> OperatorGraph:
    """Fuse each normalization module (RMSNorm, LayerNorm) into one kernel per direction."""
    return fuse(graph, "norm", lambda node: _is_memory_bound(node) and "norm" in _module(node))


def rotary(graph: OperatorGraph) -> OperatorGraph:
    """Fuse each run of rotary-embedding operators in attention modules."""
    return fuse(graph, "rotary", lambda node: node.operator in _ROTARY and "attn" in _module(node))


def activation(graph: OperatorGraph) -> OperatorGraph:
    """Fuse an activation and its gate (SwiGLU, GeGLU) into one kernel per direction."""
    return fuse(
        graph, "activation", lambda node: _is_memory_bound(node) and _matches(_ACTIVATION, node) and "mlp" in node.scope
    )


def cross_entropy(graph: OperatorGraph) -> OperatorGraph:
    """Fuse the cast of logits, softmax and loss into one kernel, and the gradient into another."""
    return fuse(graph, "cross_entropy", lambda node: _matches(_LOSS, node) and not node.scope)


def pointwise(graph: OperatorGraph) -> OperatorGraph:
    """Fuse like a pointwise compiler: neighbours over the same number of elements, including reductions."""
    return fuse(graph, "pointwise", _is_memory_bound, same_size=True)


def fuse(graph: OperatorGraph, name: str, belongs: Callable[[Node], bool], *, same_size: bool = False) -> OperatorGraph:
    """Fuse each run of neighbouring nodes that satisfy ``belongs`` into ``fused::name``.

    ``same_size``: fuse only nodes with equally large tensors. Views do not interrupt a run.
    """
    used_elsewhere = _used_elsewhere(graph)
    batch, sequence = graph.traced["batch"], graph.traced["sequence"]
    elements_by_shape = []
    for shape in graph.shapes:
        num_elements = 1
        for size in shape:
            num_elements *= read(size)(batch, sequence)
        elements_by_shape.append(num_elements)

    def largest(node: Node) -> int:
        return max((elements_by_shape[operand.shape] for operand in (*node.inputs, *node.outputs)), default=0)

    segments = []
    for index, segment in enumerate(graph.segments):
        nodes: list[Node] = []
        run: list[Node] = []
        for node in segment.nodes:
            fits = not run or not same_size or largest(node) == largest(run[0])
            if (run and node.view) or (belongs(node) and fits):
                run.append(node)
            else:
                nodes += _fused_run(run, segment, name, (batch, sequence), used_elsewhere[index], elements_by_shape)
                run = [node] if belongs(node) else []
                nodes += [] if run else [node]
        nodes += _fused_run(run, segment, name, (batch, sequence), used_elsewhere[index], elements_by_shape)
        segments.append(
            msgspec.structs.replace(segment, nodes=tuple(_without_dead_views(nodes, segment, used_elsewhere[index])))
        )
    return msgspec.structs.replace(graph, segments=tuple(segments))


def _fused_run(
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
    later_values = _values_used_after(segment, work[-1])
    storage_bytes = [read(value.bytes)(*traced) for value in segment.values]
    written_operands: dict[int, Operand] = {}
    read_parts: dict[int, list[Operand]] = {}
    for node in work:
        written = {node.inputs[position].value for position in node.written}
        for operand in node.inputs:
            if operand.value not in written_operands:
                _count_read(read_parts, operand, elements, storage_bytes[operand.value])
            if operand.value in written:
                _keep_largest(written_operands, operand, elements)
        for operand in node.outputs:
            _keep_largest(written_operands, operand, elements)
    outputs = tuple(operand for value, operand in written_operands.items() if value in used or value in later_values)
    views = [node for node in run if node.view]
    inputs = tuple(operand for parts in read_parts.values() for operand in parts)
    fused = Node(f"{PREFIX}{name}", work[0].scope, inputs, outputs)
    return [fused, *views]


def _values_used_after(segment: Segment, last: Node) -> set[int]:
    """Values used by the nodes after ``last``."""
    last_index = max(index for index, node in enumerate(segment.nodes) if node is last)
    return {operand.value for node in segment.nodes[last_index + 1 :] if not node.view for operand in node.inputs}


def _without_dead_views(nodes: Iterable[Node], segment: Segment, used: set[int]) -> list[Node]:
    """Nodes without views of values that no node writes any more."""
    written_values = {
        operand.value for node in nodes if not node.view for operand in (*node.inputs, *node.outputs)
    } | used
    local_values = {index for index, value in enumerate(segment.values) if value.origin is ValueOrigin.OWN}
    return [
        node
        for node in nodes
        if not (
            node.view
            and any(operand.value in local_values - written_values for operand in (*node.inputs, *node.outputs))
        )
    ]


def _used_elsewhere(graph: OperatorGraph) -> list[set[int]]:
    """By segment: values used by other segments or the next block, returned as gradients, or from outside."""
    used = [set(segment.gradients.values()) for segment in graph.segments]
    for index, segment in enumerate(graph.segments):
        for value_index, value in enumerate(segment.values):
            if value.origin is not ValueOrigin.OWN:
                used[index].add(value_index)
            if value.origin in (ValueOrigin.SEGMENT, ValueOrigin.CARRY):
                used[value.segment].add(value.index)
            if value.origin is ValueOrigin.CARRY:
                used[index].add(value.again)
    return used


def _count_read(
    read_parts: dict[int, list[Operand]], operand: Operand, elements: list[int], storage_bytes: int
) -> None:
    """Count reads of tensor parts; if the parts together exceed the whole tensor, count the largest instead."""
    parts = read_parts.setdefault(operand.value, [])
    sizes = [elements[part.shape] * dtype_bytes(part.dtype) for part in (*parts, operand)]
    if sum(sizes) <= storage_bytes:
        parts.append(operand)
    elif not parts or sizes[-1] > max(sizes[:-1]):
        parts[:] = [operand]


def _keep_largest(largest_by_value: dict[int, Operand], operand: Operand, elements: list[int]) -> None:
    largest = largest_by_value.get(operand.value)
    if largest is None or elements[operand.shape] > elements[largest.shape]:
        largest_by_value[operand.value] = operand


def _is_memory_bound(node: Node) -> bool:
    return not node.view and not node.operator.startswith(("comm::", PREFIX, *_WITH_FLOPS, *_NEVER_FUSED))


def _matches(words: Iterable[str], node: Node) -> bool:
    return not node.view and any(word in node.operator for word in words)


def _module(node: Node) -> str:
    return node.scope.rstrip(".").rpartition(".")[2]
