"""Context parallelism: every rank holds a part of each sequence, and only attention needs the other parts.

**all-gather** (torchtitan, Llama 3): keys and values of all ranks are gathered before attention, and their gradients
reduce-scattered. Parts come from the beginning and the end of the sequence, so that under a causal mask every rank sees
half of the keys on average. **ulysses**: an all-to-all before attention trades tokens for heads, another one after it
trades back.
**ring**: see `presim.passes.ring`.
The symbol S in sizes is the length of one rank's part.
"""

from __future__ import annotations

import dataclasses

import msgspec

from presim.errors import InputError
from presim.graph.schema import Node, Operand, OperatorGraph, Origin, Segment, Value
from presim.graph.sizes import Size, divide, lengthen, read
from presim.passes import ring
from presim.passes.collectives import ALL_GATHER, ALL_TO_ALL, REDUCE_SCATTER, WAIT

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
    whole: dict[int, int] = dataclasses.field(default_factory=dict)  # value -> tensor that attention uses instead


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
        others = (key, value) if not self._by_heads else (query, key, value)
        replaced = {one.value: self._before(part, node, one) for one in others}
        inputs = tuple(replaced.get(one.value, one) for one in node.inputs)
        if not self._by_heads:
            part.nodes.append(self._half(node, inputs, node.outputs))
            return
        outputs = tuple(self._twin(part, one) if one.shape in self._four() else one for one in node.outputs)
        part.nodes.append(msgspec.structs.replace(node, inputs=inputs, outputs=outputs))
        self._communicate(part, ALL_TO_ALL, outputs[0], node.outputs[0], node.scope)

    def _backward(self, part: _Part, node: Node) -> None:
        gradient, query, key, value, out = node.inputs[:5]
        replaced: dict[int, Operand] = {}
        if self._by_heads:
            replaced[gradient.value] = self._before(part, node, gradient)
        for one in (query, key, value, out, *node.inputs[5:]):
            if (other := self._saved(part, one)) is not None:
                replaced[one.value] = other
        inputs = tuple(replaced.get(one.value, one) for one in node.inputs)
        made = node.outputs if self._by_heads else node.outputs[1:3]
        whole = {one.value: self._twin(part, one) for one in made if one.shape in self._four()}
        outputs = tuple(whole.get(one.value, one) for one in node.outputs)
        if self._by_heads:
            part.nodes.append(msgspec.structs.replace(node, inputs=inputs, outputs=outputs))
        else:
            part.nodes.append(self._half(node, inputs, outputs))
        kind = ALL_TO_ALL if self._by_heads else REDUCE_SCATTER
        for one in node.outputs:
            if one.value in whole:
                self._communicate(part, kind, whole[one.value], one, node.scope)

    def _half(self, node: Node, inputs: tuple[Operand, ...], outputs: tuple[Operand, ...]) -> Node:
        """Attention with its share of keys: half of all keys under a causal mask, else all."""
        if not node.attributes.get("is_causal"):
            return msgspec.structs.replace(node, inputs=inputs, outputs=outputs)
        place = 1 if node.operator == _FORWARD else 2
        halved = tuple(
            self._shaped(one, self._degree // 2, self._degree) if index in (place, place + 1) else one
            for index, one in enumerate(inputs)
        )
        return msgspec.structs.replace(
            node, inputs=halved, outputs=outputs, attributes={**node.attributes, "is_causal": 0}
        )

    def _four(self) -> set[int]:
        return {index for shape, index in self._shapes.items() if len(shape) == 4}

    def _before(self, part: _Part, node: Node, operand: Operand) -> Operand:
        """The tensor that attention uses instead, after communication."""
        whole = self._twin(part, operand)
        part.whole[operand.value] = whole.value
        self._communicate(part, ALL_TO_ALL if self._by_heads else ALL_GATHER, operand, whole, node.scope)
        return whole

    def _saved(self, part: _Part, operand: Operand) -> Operand | None:
        """The tensor that attention used instead in the forward pass."""
        value = part.values[operand.value]
        if value.origin is not Origin.SEGMENT:
            return None
        there = self._parts[value.segment].whole.get(value.index)
        if there is None:
            return None
        size = self._parts[value.segment].values[there].bytes
        part.values.append(msgspec.structs.replace(value, bytes=size, index=there))
        return msgspec.structs.replace(self._whole(operand), value=len(part.values) - 1)

    def _twin(self, part: _Part, operand: Operand) -> Operand:
        """A new tensor with all tokens, and with fewer heads if heads are exchanged."""
        size = part.values[operand.value].bytes
        part.values.append(Value(Origin.OWN, size if self._by_heads else lengthen(size, self._degree)))
        part.whole[operand.value] = len(part.values) - 1
        return msgspec.structs.replace(self._whole(operand), value=len(part.values) - 1)

    def _whole(self, operand: Operand) -> Operand:
        return self._shaped(operand, self._degree, 1)

    def _shaped(self, operand: Operand, times: int, done: int) -> Operand:
        """The tensor with ``times`` as many tokens; ``done``: factor already applied."""
        shape = list(self._graph_shape(operand.shape))
        shape = [self._scaled(size, times, done) for size in shape]
        if self._by_heads and len(shape) == 4:
            heads = divide(shape[_HEADS], self._degree)
            if heads is None:
                raise InputError(
                    f"context = {self._degree} does not divide {shape[_HEADS]} heads of attention, as ulysses needs "
                    f"({shape[_HEADS]} % {self._degree} = {int(shape[_HEADS]) % self._degree}); use all-gather or ring"
                )
            shape[_HEADS] = heads
        steps = self._graph_shape(operand.stride)
        stride = [self._scaled(size, times, done) for size in steps]
        if self._by_heads and len(shape) == 4:
            stride = self._closed(self._graph_shape(operand.shape), steps, stride)
        return msgspec.structs.replace(operand, shape=self._index(shape), stride=self._index(stride))

    def _closed(self, shape: tuple[Size, ...], steps: tuple[Size, ...], stride: list[Size]) -> list[Size]:
        """Strides of the dimensions around the heads, after the number of heads shrinks."""
        traced = self._graph.traced["batch"], self._graph.traced["sequence"]
        numbers = [read(size)(*traced) for size in steps]
        end = numbers[_HEADS] * read(shape[_HEADS])(*traced)
        fewer = [divide(size, self._degree) for size in stride]
        return [
            less if less is not None and number and number % end == 0 else size
            for size, less, number in zip(stride, fewer, numbers)
        ]

    def _scaled(self, size: Size, times: int, done: int) -> Size:
        if done == 1 or lengthen(size, 2) == size:
            return lengthen(size, times)
        whole = divide(size, done)
        return size if whole is None else lengthen(whole, times)

    def _graph_shape(self, index: int) -> tuple[Size, ...]:
        return list(self._shapes)[index]

    def _index(self, shape: list[Size]) -> int:
        return self._shapes.setdefault(tuple(shape), len(self._shapes))

    def _communicate(self, part: _Part, kind: str, source: Operand, target: Operand, scope: str) -> None:
        attributes: dict[str, int | str | list[int]] = {"group": "context"}
        part.nodes.append(Node(kind, scope, (source,), (target,), attributes=attributes))
        part.nodes.append(Node(WAIT, scope, (target,), (), view=True))
