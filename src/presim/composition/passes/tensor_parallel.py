"""Tensor parallelism: split matrices by columns or rows between ranks, and propagate the split.

The model itself lists the matrices to split (Hugging Face's ``tp_plan``); `tensor_rules` propagates the split through
the operators. A matrix product over a split dimension gives partial sums. These are all-reduced immediately, as
DTensor's ``ColwiseParallel`` and ``RowwiseParallel`` do for each linear layer (`tensor_exchanges`).
"""

from __future__ import annotations

import fnmatch
import math

import msgspec

from presim.composition.graph.graph_schema import Node, Operand, OperatorGraph, Parameter, Segment, Value, ValueOrigin
from presim.composition.graph.sizes import lengthen
from presim.composition.passes.collective_names import WAIT
from presim.composition.passes.tensor_exchanges import Exchanges
from presim.composition.passes.tensor_parts import Part, Tensors
from presim.composition.passes.tensor_rules import TensorRules
from presim.errors import InputError
from presim.trace.dtypes import dtype_bytes

_COLUMNS, _ROWS = "colwise", "rowwise"
_STORED_BY_INPUT = "conv1d_"  # in front of a style: the weight's first dimension is the input, as in GPT-2's Conv1D
_STYLES = (_COLUMNS, _ROWS, _STORED_BY_INPUT + _COLUMNS, _STORED_BY_INPUT + _ROWS)
_WORDS = ("embedding_rowwise", "colwise_gather_output", "colwise_rep")  # styles of embedding and output layer
_REDUCED = "c10d::allreduce_"  # all-reduce in the model's own code
_NORM_BACKWARD = "aten::_fused_rms_norm_backward"


def apply(
    graph: OperatorGraph,
    degree: int,
    *,
    sequence: bool = False,
    vocabulary: bool = False,
    gathers_again: bool = False,
) -> OperatorGraph:
    """The graph of one of ``degree`` ranks; unchanged if ``degree`` is 1.

    ``sequence``: split activations between tensor-parallel layers along the sequence; the symbol S in sizes then is the
    length of one rank's part. ``vocabulary``: split embedding, output layer and loss by vocabulary. ``gathers_again``:
    gather inputs of split layers again for weight gradients and sum gradients of norms later, as Megatron does; DTensor
    keeps the gathered inputs.

    Raises:
        InputError: the model has no ``tp_plan``, a size does not divide, or an operator cannot be split.
    """
    if degree == 1:
        return graph
    if not any(style in _STYLES for style in graph.tensor_parallel.values()):
        raise InputError(f"{graph.model} has no plan of how to split its modules (tp_plan); use a tensor degree of 1")
    if vocabulary and not any(style in _WORDS for style in graph.tensor_parallel.values()):
        raise InputError(
            f"{graph.model} has no plan of how to split its embedding and output layer (tp_plan); leave out sequence "
            "and vocabulary parallelism"
        )
    return _Split(graph, degree, sequence, vocabulary, gathers_again).graph()


class _Split:
    def __init__(
        self, graph: OperatorGraph, degree: int, sequence: bool, vocabulary: bool, gathers_again: bool
    ) -> None:
        self._graph, self._vocabulary, self._gathers_again = graph, vocabulary, gathers_again
        self._times = degree if sequence else 1  # number of parts of a sequence
        # a model written for a split vocabulary reduces its loss itself (Megatron)
        sums_itself = any(node.operator == _REDUCED for segment in graph.segments for node in segment.nodes)
        self._parts: list[Part] = []
        self._tensors = Tensors(graph, degree, self._times)
        self._rules = TensorRules(self._tensors, vocabulary, sums_itself)
        self._exchanges = Exchanges(self._tensors, self._parts, vocabulary, gathers_again)

    def graph(self) -> OperatorGraph:
        for segment in self._graph.segments:
            self._parts.append(Part(segment, [], list(segment.values), {}))
            self._rewrite_segment(self._parts[-1])
        segments = tuple(
            msgspec.structs.replace(part.segment, nodes=tuple(part.nodes), values=tuple(part.values))
            for part in self._parts
        )
        parameters = tuple(self._local_parameter(parameter) for parameter in self._graph.parameters)
        shapes = tuple(self._tensors.shapes)
        return msgspec.structs.replace(self._graph, segments=segments, shapes=shapes, parameters=parameters)

    def _rewrite_segment(self, part: Part) -> None:
        for index, value in enumerate(part.segment.values):
            self._record_incoming_split(part, index, value)
        for node in part.segment.nodes:
            if node.operator == _REDUCED:
                reduced = self._tensors.local_operand(part, node.inputs[0], node, False)
                part.all_reduce(reduced, node.scope)
                part.wait((reduced,), node.scope)
            else:
                self._rewrite_node(part, node)
        for sum_ in list(part.partial):
            self._exchanges.scatter(part, part.partial.pop(sum_), part.segment.nodes[-1])
        for open_value in sorted(part.waiting):
            part.nodes.append(Node(WAIT, "", (Operand(open_value, 0, "", 0),), (), view=True))
        self._resize(part)

    def _record_incoming_split(self, part: Part, index: int, value: Value) -> None:
        """Record how a value from outside the segment is split."""
        end = self._incoming_split_end(part.segment, value)
        if end:
            part.split_ends[index] = end
        if value.origin in (ValueOrigin.SEGMENT, ValueOrigin.CARRY):
            other = self._parts[value.segment]
            used = other.reduced.get(value.index, value.index)
            part.values[index] = msgspec.structs.replace(value, index=used)
            if used in other.local:
                part.local.add(index)

    def _rewrite_node(self, part: Part, node: Node) -> None:
        """Rewrite one operator, with the communication before and after it."""
        exchanges = self._exchanges
        node = exchanges.with_gathers(part, exchanges.with_sums(part, node))
        partial = not node.view and self._rules.split(part, node)
        local = self._times > 1 and not node.view and self._mark_sequence_parts(part, node, partial)
        if not node.view:
            part.wait(node.inputs, node.scope)
        rewritten = exchanges.with_row_outputs(part, node, self._rewrite(part, node, local))
        for position in node.written:
            part.gathered.pop(node.inputs[position].value, None)
        if exchanges.adds_sums(part, node):
            part.nodes.append(rewritten)
            for operand in node.inputs[:2]:
                part.partial.pop(operand.value)
            part.partial[node.outputs[0].value] = node.outputs[0]
        elif partial and exchanges.is_late(node):
            part.nodes.append(rewritten)
            part.partial[node.outputs[0].value] = node.outputs[0]
        elif partial or exchanges.is_sum_of_parts(node, local):
            exchanges.all_reduce_sums(part, rewritten)
        else:
            part.nodes.append(rewritten)
            if local and node.operator == _NORM_BACKWARD and not self._gathers_again:
                for out in rewritten.outputs[1:]:  # weight gradients sum over the sequence
                    part.all_reduce(out, node.scope)
        exchanges.reduce_rows(part, rewritten, node)

    def _resize(self, part: Part) -> None:
        """Set the sizes of values to one rank's part."""
        for index, value in enumerate(part.values):
            if value.again in part.reduced:
                part.values[index] = msgspec.structs.replace(value, again=part.reduced[value.again])
        for index, value in enumerate(part.values[: len(part.segment.values)]):
            if self._times > 1 and index not in part.local:
                part.values[index] = msgspec.structs.replace(value, bytes=lengthen(value.bytes, self._times))
        for index, end in part.split_ends.items():
            value = part.values[index]
            if end:
                part.values[index] = msgspec.structs.replace(
                    value, bytes=self._tensors.divide(value.bytes, "a storage")
                )

    def _incoming_split_end(self, segment: Segment, value: Value) -> int:
        if value.origin is ValueOrigin.PARAMETER:
            return self._split_end_by_name(segment, value.name)
        if value.origin in (ValueOrigin.SEGMENT, ValueOrigin.CARRY):
            return self._parts[value.segment].split_ends.get(value.index, 0)
        return 0

    def _split_end_by_name(self, segment: Segment, name: str) -> int:
        parameter = next(
            (
                candidate
                for candidate in self._graph.parameters
                if candidate.name == name and self._owns(candidate, segment)
            ),
            None,
        )
        return self._split_end(parameter) * dtype_bytes(parameter.dtype) if parameter else 0

    def _owns(self, parameter: Parameter, segment: Segment) -> bool:
        if parameter.segment < 0:
            return True
        home = self._graph.segments[parameter.segment]
        return home is segment or (segment.twin >= 0 and self._graph.segments[segment.twin] is home)

    def _split_end(self, parameter: Parameter) -> int:
        """End of a parameter's split dimension: columns are the first of a Linear's weight, rows the second."""
        block_path = self._graph.segments[parameter.segment].name if parameter.segment >= 0 else ""
        module, _, kind = f"{block_path}{parameter.name}".rpartition(".")
        for pattern, style in self._graph.tensor_parallel.items():
            if self._vocabulary and style in _WORDS and fnmatch.fnmatchcase(module, pattern):
                return math.prod(parameter.shape)
            if style in _STYLES and fnmatch.fnmatchcase(module, pattern):
                is_columns = style.endswith(_COLUMNS)
                if kind != "weight":
                    return math.prod(parameter.shape) if is_columns else 0
                is_first = is_columns != style.startswith(_STORED_BY_INPUT)
                return math.prod(parameter.shape) if is_first else parameter.shape[-1]
        return 0

    def _mark_sequence_parts(self, part: Part, node: Node, partial: bool) -> bool:
        """Whether a node works on a part of the sequence; marks its outputs with a sequence dimension as parts."""
        touches = any(operand.value in part.local for operand in node.inputs)
        starts = node.operator == "aten::embedding" and not partial
        if not (touches or starts):
            return False
        part.local |= {operand.value for operand in node.outputs if self._tensors.has_sequence(operand)}
        return True

    def _rewrite(self, part: Part, node: Node, local: bool = False) -> Node:
        def local_operand(operand: Operand) -> Operand:
            return self._tensors.local_operand(part, operand, node, local or operand.value in part.local)

        return msgspec.structs.replace(
            node, inputs=tuple(map(local_operand, node.inputs)), outputs=tuple(map(local_operand, node.outputs))
        )

    def _local_parameter(self, parameter: Parameter) -> Parameter:
        end = self._split_end(parameter)
        if not end:
            return parameter
        steps, step = [], 1
        for size in reversed(parameter.shape):
            steps.append(step)
            step *= size
        shape = list(parameter.shape)
        for dim, (size, step) in enumerate(zip(parameter.shape, reversed(steps))):
            if size * step == end:
                shape[dim] = int(self._tensors.divide(size, parameter.name))
        return msgspec.structs.replace(parameter, shape=tuple(shape))
