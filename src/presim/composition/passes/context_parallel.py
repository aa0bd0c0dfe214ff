"""Context parallelism: every rank holds a part of each sequence, and only attention needs the other parts.

**all-gather** (torchtitan, Llama 3): keys and values of all ranks are gathered before attention, and their gradients
reduce-scattered. Parts come from the beginning and the end of the sequence, so that under a causal mask every rank sees
half of the keys on average. **ulysses**: an all-to-all before attention trades tokens for heads, another one after it
trades back.
**ring**: see `presim.composition.passes.ring`.
The symbol S in sizes is the length of one rank's part.
"""

from __future__ import annotations

import dataclasses

import msgspec

from presim.composition.graph.graph_schema import Node, Operand, OperatorGraph, Segment, Value, ValueOrigin
from presim.composition.graph.sizes import Size, divide, lengthen, read
from presim.composition.passes import ring
from presim.composition.passes.collective_names import ALL_GATHER, ALL_TO_ALL, REDUCE_SCATTER, WAIT
from presim.errors import InputError

_FORWARD = "aten::_scaled_dot_product_cudnn_attention"
_BACKWARD = "aten::_scaled_dot_product_cudnn_attention_backward"
_SCANS = (
    "triton::chunk_gated_delta_rule_fwd_kernel_h_blockdim64",
    "triton::_state_passing_fwd_kernel",
    "triton::selective_scan_fwd_kernel",
)
_HEADS = 1  # dimension of attention's operands


def apply(graph: OperatorGraph, degree: int, style: str) -> OperatorGraph:
    """The graph of one of ``degree`` ranks; unchanged if ``degree`` is 1.

    Raises:
        InputError: the model has no fused attention, several sequences, or heads that do not divide among the ranks.
    """
    if degree == 1:
        return graph
    if not any(node.operator == _FORWARD for segment in graph.segments for node in segment.nodes):
        raise InputError(f"{graph.model} has no fused attention, which context parallelism splits; use a context of 1")
    blocks = dict.fromkeys(segment.name for segment in graph.segments if segment.name and not segment.backward)
    if len(blocks) > 1:
        raise InputError(
            f"{graph.model} has a sequence in each of {' and '.join(blocks)}, and splitting several over ranks is not "
            "modelled; use a context of 1"
        )
    scan = next((node for segment in graph.segments for node in segment.nodes if node.operator in _SCANS), None)
    if scan is not None:
        kernel = scan.operator.removeprefix("triton::")
        raise InputError(
            f"{graph.model} has layers that pass a state along the sequence ({kernel}), "
            f"and splitting a sequence over {degree} ranks for them is not modelled; use a context of 1"
        )
    if style == "ring":
        return ring.apply(graph, degree)
    return _Split(graph, degree, style == "ulysses").graph()


@dataclasses.dataclass
class _Part:
    segment: Segment
    values: list[Value]
    nodes: list[Node]
    # value -> tensor that attention uses instead
    replacements: dict[int, int] = dataclasses.field(default_factory=dict)


class _Split:
    def __init__(self, graph: OperatorGraph, degree: int, by_heads: bool) -> None:
        self._graph, self._degree, self._by_heads = graph, degree, by_heads
        self._shapes: dict[tuple[Size, ...], int] = {shape: index for index, shape in enumerate(graph.shapes)}
        self._parts: list[_Part] = []

    def graph(self) -> OperatorGraph:
        for segment in self._graph.segments:
            part = _Part(segment, list(segment.values), [])
            self._parts.append(part)
            for node in segment.nodes:
                if node.operator == _FORWARD:
                    self._forward(part, node)
                elif node.operator == _BACKWARD:
                    self._backward(part, node)
                else:
                    part.nodes.append(node)
        segments = tuple(
            msgspec.structs.replace(part.segment, values=tuple(part.values), nodes=tuple(part.nodes))
            for part in self._parts
        )
        return msgspec.structs.replace(self._graph, segments=segments, shapes=tuple(self._shapes))

    def _forward(self, part: _Part, node: Node) -> None:
        query, key, value = node.inputs[:3]
        exchanged = (key, value) if not self._by_heads else (query, key, value)
        replaced = {operand.value: self._exchange_before(part, node, operand) for operand in exchanged}
        inputs = tuple(replaced.get(operand.value, operand) for operand in node.inputs)
        if not self._by_heads:
            part.nodes.append(self._with_half_the_keys(node, inputs, node.outputs))
            return
        outputs = tuple(
            self._new_replacement(part, operand) if operand.shape in self._four_dimensional_shapes() else operand
            for operand in node.outputs
        )
        part.nodes.append(msgspec.structs.replace(node, inputs=inputs, outputs=outputs))
        self._communicate(part, ALL_TO_ALL, outputs[0], node.outputs[0], node.scope)

    def _backward(self, part: _Part, node: Node) -> None:
        gradient, query, key, value, out = node.inputs[:5]
        replaced: dict[int, Operand] = {}
        if self._by_heads:
            replaced[gradient.value] = self._exchange_before(part, node, gradient)
        for operand in (query, key, value, out, *node.inputs[5:]):
            if (replacement := self._saved_replacement(part, operand)) is not None:
                replaced[operand.value] = replacement
        inputs = tuple(replaced.get(operand.value, operand) for operand in node.inputs)
        split_gradients = node.outputs if self._by_heads else node.outputs[1:3]
        full_gradients = {
            operand.value: self._new_replacement(part, operand)
            for operand in split_gradients
            if operand.shape in self._four_dimensional_shapes()
        }
        outputs = tuple(full_gradients.get(operand.value, operand) for operand in node.outputs)
        if self._by_heads:
            part.nodes.append(msgspec.structs.replace(node, inputs=inputs, outputs=outputs))
        else:
            part.nodes.append(self._with_half_the_keys(node, inputs, outputs))
        kind = ALL_TO_ALL if self._by_heads else REDUCE_SCATTER
        for operand in node.outputs:
            if operand.value in full_gradients:
                self._communicate(part, kind, full_gradients[operand.value], operand, node.scope)

    def _with_half_the_keys(self, node: Node, inputs: tuple[Operand, ...], outputs: tuple[Operand, ...]) -> Node:
        """Attention with its share of keys: half of all keys under a causal mask, else all."""
        if not node.attributes.get("is_causal"):
            return msgspec.structs.replace(node, inputs=inputs, outputs=outputs)
        key_position = 1 if node.operator == _FORWARD else 2
        halved = tuple(
            self._resized(operand, self._degree // 2, self._degree)
            if index in (key_position, key_position + 1)
            else operand
            for index, operand in enumerate(inputs)
        )
        return msgspec.structs.replace(
            node, inputs=halved, outputs=outputs, attributes={**node.attributes, "is_causal": 0}
        )

    def _four_dimensional_shapes(self) -> set[int]:
        return {index for shape, index in self._shapes.items() if len(shape) == 4}

    def _exchange_before(self, part: _Part, node: Node, operand: Operand) -> Operand:
        """The tensor that attention uses instead, after communication."""
        replacement = self._new_replacement(part, operand)
        part.replacements[operand.value] = replacement.value
        self._communicate(part, ALL_TO_ALL if self._by_heads else ALL_GATHER, operand, replacement, node.scope)
        return replacement

    def _saved_replacement(self, part: _Part, operand: Operand) -> Operand | None:
        """The tensor that attention used instead in the forward pass."""
        value = part.values[operand.value]
        if value.origin is not ValueOrigin.SEGMENT:
            return None
        replacement = self._parts[value.segment].replacements.get(value.index)
        if replacement is None:
            return None
        size = self._parts[value.segment].values[replacement].bytes
        part.values.append(msgspec.structs.replace(value, bytes=size, index=replacement))
        return msgspec.structs.replace(self._with_all_tokens(operand), value=len(part.values) - 1)

    def _new_replacement(self, part: _Part, operand: Operand) -> Operand:
        """A new tensor with all tokens, and with fewer heads if heads are exchanged."""
        size = part.values[operand.value].bytes
        part.values.append(Value(ValueOrigin.OWN, size if self._by_heads else lengthen(size, self._degree)))
        part.replacements[operand.value] = len(part.values) - 1
        return msgspec.structs.replace(self._with_all_tokens(operand), value=len(part.values) - 1)

    def _with_all_tokens(self, operand: Operand) -> Operand:
        return self._resized(operand, self._degree, 1)

    def _resized(self, operand: Operand, factor: int, applied_factor: int) -> Operand:
        """The tensor with ``factor`` as many tokens; ``applied_factor``: factor already applied."""
        shape = list(self._graph_shape(operand.shape))
        shape = [self._scaled(size, factor, applied_factor) for size in shape]
        if self._by_heads and len(shape) == 4:
            heads = divide(shape[_HEADS], self._degree)
            if heads is None:
                raise InputError(
                    f"context = {self._degree} does not divide {shape[_HEADS]} heads of attention, as ulysses needs "
                    f"({shape[_HEADS]} % {self._degree} = {int(shape[_HEADS]) % self._degree}); use all-gather or ring"
                )
            shape[_HEADS] = heads
        old_stride = self._graph_shape(operand.stride)
        stride = [self._scaled(size, factor, applied_factor) for size in old_stride]
        if self._by_heads and len(shape) == 4:
            stride = self._stride_around_heads(self._graph_shape(operand.shape), old_stride, stride)
        return msgspec.structs.replace(operand, shape=self._index(shape), stride=self._index(stride))

    def _stride_around_heads(
        self, shape: tuple[Size, ...], old_stride: tuple[Size, ...], stride: list[Size]
    ) -> list[Size]:
        """Strides of the dimensions around the heads, after the number of heads shrinks."""
        traced = self._graph.traced["batch"], self._graph.traced["sequence"]
        traced_stride = [read(size)(*traced) for size in old_stride]
        end = traced_stride[_HEADS] * read(shape[_HEADS])(*traced)
        divided_stride = [divide(size, self._degree) for size in stride]
        return [
            divided if divided is not None and traced_step and traced_step % end == 0 else size
            for size, divided, traced_step in zip(stride, divided_stride, traced_stride)
        ]

    def _scaled(self, size: Size, factor: int, applied_factor: int) -> Size:
        if applied_factor == 1 or lengthen(size, 2) == size:
            return lengthen(size, factor)
        quotient = divide(size, applied_factor)
        return size if quotient is None else lengthen(quotient, factor)

    def _graph_shape(self, index: int) -> tuple[Size, ...]:
        return list(self._shapes)[index]

    def _index(self, shape: list[Size]) -> int:
        return self._shapes.setdefault(tuple(shape), len(self._shapes))

    def _communicate(self, part: _Part, kind: str, source: Operand, target: Operand, scope: str) -> None:
        attributes: dict[str, int | str | list[int]] = {"group": "context"}
        part.nodes.append(Node(kind, scope, (source,), (target,), attributes=attributes))
        part.nodes.append(Node(WAIT, scope, (target,), (), view=True))
