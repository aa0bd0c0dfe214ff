"""Ring context parallelism: keys and values travel from rank to rank while attention works on the previous ones.

Follows Transformer Engine (``cp_comm_type="p2p"``). In each of ``degree`` steps a rank sends its keys and values on and
attends to those it has; partial results are merged by their log-sum-exp. In the backward pass, gradients of keys and
values travel around the ring and are summed on the way. Each rank has a part from the start and one from the end of the
sequence, so that under a causal mask every step but the first covers half of the query-key pairs.
"""

from __future__ import annotations

import msgspec

from presim.composition.graph.graph_schema import Node, Operand, OperatorGraph, Segment, Value, ValueOrigin
from presim.composition.graph.sizes import Size, product
from presim.composition.passes.collective_names import SEND_RECV, WAIT
from presim.trace.dtypes import dtype_bytes

STEP = "ring"  # attribute of attention: number of ranks that its keys and values have travelled
KEYS_PER_ATTENDED = "keys_per_attended"  # attribute of attention: keys per attended key, on average
MERGE, ADD = "ring::merge", "ring::add"  # one kernel each
FORWARD = "aten::_scaled_dot_product_cudnn_attention"
BACKWARD = "aten::_scaled_dot_product_cudnn_attention_backward"


def apply(graph: OperatorGraph, degree: int) -> OperatorGraph:
    """The graph of one of ``degree`` ranks; the symbol S in sizes becomes the length of one rank's part."""
    shapes = {shape: index for index, shape in enumerate(graph.shapes)}
    segments = tuple(_Ring(segment, degree, shapes).segment() for segment in graph.segments)
    return msgspec.structs.replace(graph, segments=segments, shapes=tuple(shapes))


class _Ring:
    """A segment being rewritten."""

    def __init__(self, segment: Segment, degree: int, shapes: dict[tuple[Size, ...], int]) -> None:
        self._segment, self._degree, self._shapes = segment, degree, shapes
        self._values, self._nodes = list(segment.values), list[Node]()
        self._scope = ""

    def segment(self) -> Segment:
        """The segment with each attention replaced by ring steps."""
        kinds = {FORWARD: self._forward, BACKWARD: self._backward}
        if not any(node.operator in kinds for node in self._segment.nodes):
            return self._segment
        for node in self._segment.nodes:
            self._scope = node.scope
            kinds.get(node.operator, self._nodes.append)(node)
        return msgspec.structs.replace(self._segment, values=tuple(self._values), nodes=tuple(self._nodes))

    def _forward(self, node: Node) -> None:
        query, *keys_values = node.inputs[:3]
        out, sums, *extra_outputs = node.outputs
        merged: list[Operand] = []
        for step in range(self._degree):
            next_keys_values = self._pass_on(keys_values) if step < self._degree - 1 else []
            is_last = step == self._degree - 1
            step_outputs = [self._like(out), self._like(sums)]
            step_extras = extra_outputs if is_last else [self._like(operand) for operand in extra_outputs]
            self._attend(node, step, (query, *keys_values, *node.inputs[3:]), (*step_outputs, *step_extras))
            if merged:
                joined = [out, sums] if is_last else [self._like(out), self._like(sums)]
                self._nodes.append(Node(MERGE, self._scope, (*merged, *step_outputs), tuple(joined)))
                step_outputs = joined
            merged, keys_values = step_outputs, next_keys_values
            self._wait(next_keys_values)

    def _backward(self, node: Node) -> None:
        out_gradient, query, *keys_values = node.inputs[:4]
        extra_inputs, (query_gradient, *key_gradients) = node.inputs[4:], node.outputs
        query_sum, travelling_sums = list[Operand](), list[Operand]()
        for step in range(self._degree):
            is_last = step == self._degree - 1
            next_keys_values = self._pass_on(keys_values) if not is_last else []
            step_gradients = [self._like(operand) for operand in node.outputs]
            self._attend(node, step, (out_gradient, query, *keys_values, *extra_inputs), tuple(step_gradients))
            if query_sum:
                query_sum = [
                    self._add(
                        query_sum[0], step_gradients[0], query_gradient if is_last else self._like(query_gradient)
                    )
                ]
                self._wait(travelling_sums)
                sums = [
                    self._add(travelling, gradient, self._like(travelling))
                    for travelling, gradient in zip(travelling_sums, step_gradients[1:])
                ]
            else:
                query_sum, sums = step_gradients[:1], step_gradients[1:]
            travelling_sums = self._pass_on(sums, list(key_gradients) if is_last else None)
            keys_values = next_keys_values
            self._wait(next_keys_values)
        self._wait(travelling_sums)

    def _attend(self, node: Node, step: int, inputs: tuple[Operand, ...], outputs: tuple[Operand, ...]) -> None:
        """Attention to keys from ``step`` ranks before: all of them without a mask, half with a causal mask."""
        attributes: dict[str, int | str | list[int]] = {**node.attributes, STEP: step}
        if step and node.attributes.get("is_causal"):
            attributes |= {"is_causal": 0, KEYS_PER_ATTENDED: 2}
        self._nodes.append(msgspec.structs.replace(node, inputs=inputs, outputs=outputs, attributes=attributes))

    def _pass_on(self, sent: list[Operand], received: list[Operand] | None = None) -> list[Operand]:
        """Send to the next rank and receive from the previous one; returns the received tensors."""
        received = [self._like(operand) for operand in sent] if received is None else received
        attributes: dict[str, int | str | list[int]] = {"group": "context", "peer": self._degree - 1}
        self._nodes.append(Node(SEND_RECV, self._scope, tuple(sent), tuple(received), attributes=attributes))
        return received

    def _wait(self, received: list[Operand]) -> None:
        if received:
            self._nodes.append(Node(WAIT, self._scope, (received[0],), (), view=True))

    def _add(self, left: Operand, right: Operand, out: Operand) -> Operand:
        self._nodes.append(Node(ADD, self._scope, (left, right), (out,)))
        return out

    def _like(self, operand: Operand) -> Operand:
        """A new tensor of the same shape."""
        shapes = list(self._shapes)
        shape = shapes[operand.shape]
        dense: list[Size] = [1]
        for size in reversed(shape[1:]):
            dense.insert(0, product([size, dense[0]]))
        self._values.append(Value(ValueOrigin.OWN, product([*shape, dtype_bytes(operand.dtype)])))
        stride = self._shapes.setdefault(tuple(dense) if shape else (), len(self._shapes))
        return msgspec.structs.replace(operand, value=len(self._values) - 1, stride=stride)
