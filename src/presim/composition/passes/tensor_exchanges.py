"""Communication of tensor parallelism: partial sums, sequence parts, and the loss over a split vocabulary."""

from __future__ import annotations

import msgspec

from presim.composition.graph.graph_schema import Node, Operand, Value, ValueOrigin
from presim.composition.graph.sizes import lengthen, product
from presim.composition.passes.collective_names import ALL_GATHER, REDUCE_SCATTER
from presim.composition.passes.tensor_parts import PRODUCTS, Part, Tensors

_ADDITIONS = ("aten::add", "aten::add_")
_ROW_OUTPUTS = {"aten::_log_softmax": 2, "aten::nll_loss_forward": 1}  # elements per row that ranks reduce


class Exchanges:
    """Inserts communication into segments."""

    def __init__(self, tensors: Tensors, parts: list[Part], vocabulary: bool, gathers_again: bool) -> None:
        self._tensors, self._parts = tensors, parts
        self._vocabulary, self._gathers_again = vocabulary, gathers_again

    def with_sums(self, part: Part, node: Node) -> Node:
        """The node, preceded by reductions of the partial sums it uses, except sums that it only adds to others."""
        partial_inputs = [operand.value for operand in node.inputs if operand.value in part.partial]
        if node.view:
            return _with_values_replaced(node, part.reduced)
        if partial_inputs and not self.adds_sums(part, node):
            for value in dict.fromkeys(partial_inputs):
                self.scatter(part, part.partial.pop(value), node)
        return _with_values_replaced(node, part.reduced)

    def adds_sums(self, part: Part, node: Node) -> bool:
        """Whether a node adds partial sums that are reduced together afterwards."""
        values = {operand.value for operand in node.inputs}
        return node.operator in _ADDITIONS and len(values) == 2 and all(value in part.partial for value in values)

    def with_gathers(self, part: Part, node: Node) -> Node:
        """The node with sequence parts gathered if it multiplies them with a split tensor."""
        gathers = node.operator in PRODUCTS and any(operand.value in part.split_ends for operand in node.inputs)
        gathers |= self._vocabulary and node.operator == "aten::embedding_dense_backward"
        if not gathers or not any(operand.value in part.local for operand in node.inputs):
            return node
        for operand in node.inputs:
            if operand.value in part.local and operand.value not in part.gathered:
                if (forward_value := self._gathered_in_forward(part, operand.value)) is not None:
                    part.values.append(forward_value)
                    part.gathered[operand.value] = len(part.values) - 1
                    continue
                part.wait((operand,), node.scope)
                full_bytes = lengthen(part.segment_bytes(operand.value), self._tensors.times)
                gathered = part.add_storage(full_bytes)
                local_operand = self._tensors.local_operand(part, operand, node, True)
                full_operand = self._tensors.local_operand(
                    part, msgspec.structs.replace(operand, value=gathered), node, False
                )
                attributes: dict[str, int | str | list[int]] = {"group": "tensor"}
                part.nodes.append(
                    Node(ALL_GATHER, node.scope, (local_operand,), (full_operand,), attributes=attributes)
                )
                part.waiting.add(gathered)
                if not self._gathers_again:
                    part.wait((full_operand,), node.scope)
                    gathered = self._rejoined(part, full_operand, node.scope).value
                part.gathered[operand.value] = part.first_gathered[operand.value] = gathered
        return _with_values_replaced(node, part.gathered)

    def _gathered_in_forward(self, part: Part, index: int) -> Value | None:
        """The gathered tensor that the forward pass kept for a value, if any."""
        value = part.values[index]
        if self._gathers_again or not part.segment.backward or value.origin is not ValueOrigin.SEGMENT:
            return None
        gathered = self._parts[value.segment].first_gathered.get(value.index)
        if gathered is None or self._parts[value.segment].segment.backward:
            return None
        return msgspec.structs.replace(value, index=gathered, bytes=self._parts[value.segment].values[gathered].bytes)

    def is_late(self, node: Node) -> bool:
        """Whether a sum is reduced later, after others were added: sums of activations along the sequence."""
        return self._tensors.times > 1 and self._tensors.has_sequence(node.outputs[0])

    def is_sum_of_parts(self, node: Node, local: bool) -> bool:
        """Whether a result is a partial sum because it sums over a split sequence."""
        return bool(local and node.outputs and not node.written and not self._tensors.has_sequence(node.outputs[0]))

    def scatter(self, part: Part, operand: Operand, node: Node) -> None:
        """Reduce-scatter sums: each rank keeps its part of the sequence."""
        scattered = part.add_storage(part.segment_bytes(operand.value))
        part.local.add(scattered)
        part.reduced[operand.value] = scattered
        full_operand = self._tensors.local_operand(part, operand, node, False)
        local_operand = self._tensors.local_operand(part, msgspec.structs.replace(operand, value=scattered), node, True)
        attributes: dict[str, int | str | list[int]] = {"group": "tensor"}
        if not self._gathers_again:
            full_operand = self._rejoined(part, full_operand, node.scope)
        part.nodes.append(Node(REDUCE_SCATTER, node.scope, (full_operand,), (local_operand,), attributes=attributes))
        part.waiting.add(scattered)

    def _rejoined(self, part: Part, operand: Operand, scope: str) -> Operand:
        """Copy gathered parts to the sequence dimension, because functional collectives use the first dimension."""
        size = part.values[operand.value].bytes
        # values of the segment itself are resized when it is finished
        is_full_sequence = operand.value >= len(part.segment.values)
        storage = part.add_storage(size if is_full_sequence else lengthen(size, self._tensors.times))
        joined = msgspec.structs.replace(operand, value=storage)
        part.nodes.append(Node("aten::cat", scope, (operand,), (joined,)))
        return joined

    def all_reduce_sums(self, part: Part, node: Node) -> None:
        """All-reduce partial sums: copy them to a new storage and reduce the copy, as functional collectives do."""
        out = node.outputs[0]
        partial_copy = part.add_storage(lengthen(part.values[out.value].bytes, self._tensors.times))
        partial = msgspec.structs.replace(out, value=partial_copy)
        part.nodes.append(msgspec.structs.replace(node, outputs=(partial, *node.outputs[1:])))
        part.nodes.append(Node("aten::clone", node.scope, (partial,), (out,), attributes={"plain": 1}))
        part.all_reduce(out, node.scope)

    def with_row_outputs(self, part: Part, node: Node, rewritten: Node) -> Node:
        """The rewritten node; in a loss over a split vocabulary it also produces one element per row.

        Softmax produces the largest logit and the sum of exponentials; the loss itself produces the label's logit.
        """
        num_row_outputs = _ROW_OUTPUTS.get(node.operator, 0)
        if not (num_row_outputs and self._vocabulary and node.inputs[0].value in part.split_ends):
            return rewritten
        rows = self._tensors.graph.shapes[node.inputs[0].shape][0]
        shape = self._tensors.index([lengthen(rows, self._tensors.times)])
        stride, size = self._tensors.index([1]), lengthen(product([4, rows]), self._tensors.times)
        row_outputs = tuple(Operand(part.add_storage(size), shape, "float32", stride) for _ in range(num_row_outputs))
        return msgspec.structs.replace(rewritten, outputs=(*rewritten.outputs, *row_outputs))

    def reduce_rows(self, part: Part, node: Node, before: Node) -> None:
        """All-reduce the outputs that `loss` added to a node."""
        for operand in node.outputs[len(before.outputs) :] if node.operator in _ROW_OUTPUTS else ():
            part.all_reduce(operand, node.scope)
            part.wait((operand,), node.scope)


def _with_values_replaced(node: Node, new_values: dict[int, int]) -> Node:
    if not any(operand.value in new_values for operand in (*node.inputs, *node.outputs)):
        return node

    def renamed(operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
        return tuple(
            msgspec.structs.replace(operand, value=new_values.get(operand.value, operand.value)) for operand in operands
        )

    return msgspec.structs.replace(node, inputs=renamed(node.inputs), outputs=renamed(node.outputs))
