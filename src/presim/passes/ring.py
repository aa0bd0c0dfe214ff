"""Ring context parallelism: keys and values travel from rank to rank while attention works on the previous ones.

Follows Transformer Engine (``cp_comm_type="p2p"``). In each of ``degree`` steps a rank sends its keys and values on and
attends to those it has; partial results are merged by their log-sum-exp. In the backward pass, gradients of keys and
values travel around the ring and are summed on the way. Each rank has a part from the start and one from the end of the
sequence, so that under a causal mask every step but the first covers half of the query-key pairs.
"""

from __future__ import annotations

import msgspec

from presim.graph.schema import Node, Operand, OperatorGraph, Origin, Segment, Value
from presim.graph.sizes import Size, product
from presim.passes.collectives import SEND_RECV, WAIT
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
        query, *held = node.inputs[:3]
        out, sums, *others = node.outputs
        so_far: list[Operand] = []
        for step in range(self._degree):
            came = self._pass_on(held) if step < self._degree - 1 else []
            is_last = step == self._degree - 1
            made = [self._like(out), self._like(sums)]
            rest = others if is_last else [self._like(one) for one in others]
            self._attend(node, step, (query, *held, *node.inputs[3:]), (*made, *rest))
            if so_far:
                joined = [out, sums] if is_last else [self._like(out), self._like(sums)]
                self._nodes.append(Node(MERGE, self._scope, (*so_far, *made), tuple(joined)))
                made = joined
            so_far, held = made, came
            self._wait(came)

    def _backward(self, node: Node) -> None:
        gradient, query, *held = node.inputs[:4]
        rest, (of_query, *of_keys) = node.inputs[4:], node.outputs
        so_far, travelling = list[Operand](), list[Operand]()
        for step in range(self._degree):
            is_last = step == self._degree - 1
            came = self._pass_on(held) if not is_last else []
            made = [self._like(one) for one in node.outputs]
            self._attend(node, step, (gradient, query, *held, *rest), tuple(made))
            if so_far:
                so_far = [self._add(so_far[0], made[0], of_query if is_last else self._like(of_query))]
                self._wait(travelling)
                sums = [self._add(one, own, self._like(one)) for one, own in zip(travelling, made[1:])]
            else:
                so_far, sums = made[:1], made[1:]
            travelling = self._pass_on(sums, list(of_keys) if is_last else None)
            held = came
            self._wait(came)
        self._wait(travelling)

    def _attend(self, node: Node, step: int, inputs: tuple[Operand, ...], outputs: tuple[Operand, ...]) -> None:
        """Attention to keys from ``step`` ranks before: all of them without a mask, half with a causal mask."""
        attributes: dict[str, int | str | list[int]] = {**node.attributes, STEP: step}
        if step and node.attributes.get("is_causal"):
            attributes |= {"is_causal": 0, KEYS_PER_ATTENDED: 2}
        self._nodes.append(msgspec.structs.replace(node, inputs=inputs, outputs=outputs, attributes=attributes))

    def _pass_on(self, sent: list[Operand], made: list[Operand] | None = None) -> list[Operand]:
        """Send to the next rank and receive from the previous one; returns the received tensors."""
        made = [self._like(one) for one in sent] if made is None else made
        attributes: dict[str, int | str | list[int]] = {"group": "context", "peer": self._degree - 1}
        self._nodes.append(Node(SEND_RECV, self._scope, tuple(sent), tuple(made), attributes=attributes))
        return made

    def _wait(self, came: list[Operand]) -> None:
        if came:
            self._nodes.append(Node(WAIT, self._scope, (came[0],), (), view=True))

    def _add(self, one: Operand, other: Operand, out: Operand) -> Operand:
        self._nodes.append(Node(ADD, self._scope, (one, other), (out,)))
        return out

    def _like(self, operand: Operand) -> Operand:
        """A new tensor of the same shape."""
        shapes = list(self._shapes)
        shape = shapes[operand.shape]
        dense: list[Size] = [1]
        for size in reversed(shape[1:]):
            dense.insert(0, product([size, dense[0]]))
        self._values.append(Value(Origin.OWN, product([*shape, dtype_bytes(operand.dtype)])))
        stride = self._shapes.setdefault(tuple(dense) if shape else (), len(self._shapes))
        return msgspec.structs.replace(operand, value=len(self._values) - 1, stride=stride)
