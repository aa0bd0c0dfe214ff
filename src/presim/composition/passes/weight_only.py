"""Products of 16-bit activations and 4-bit weights (W4A16), as in models quantised by GPTQ or AWQ.

Weights lie packed, two values a byte, with a factor in the model's type for each 128 values of a row; kernels unpack
them while they multiply (Marlin). There is no cast. Factors are counted as memory, and not in a product's traffic.
"""

from __future__ import annotations

import msgspec

from presim.composition.graph.graph_schema import Node, OperatorGraph, Parameter, Segment, Value, ValueOrigin
from presim.composition.graph.parameters import elements
from presim.errors import InputError

NAME = "w4a16"
_GROUP = 128  # values that share a factor
_PRODUCTS = ("aten::mm", "aten::addmm")


def apply(graph: OperatorGraph) -> OperatorGraph:
    """The forward graph with packed weights in the linear layers of repeated blocks.

    Raises:
        InputError: the graph has a backward pass.
    """
    if any(segment.backward for segment in graph.segments):
        raise InputError(
            f"{NAME} is of inference: 4-bit weights have no gradients, and the graph of {graph.model} has a backward "
            "pass; use int8 or fp8-row for training, or `presim serve` with the 4-bit model"
        )
    names: set[tuple[int, str]] = set()
    segments = list(graph.segments)
    for index, segment in enumerate(graph.segments):
        if segment.name:
            packed = {_weight(node, segment, graph) for node in segment.nodes} - {""}
            names |= {(index, name) for name in packed}
            segments[index] = _packed(segment, packed)
    parameters: list[Parameter] = []
    for parameter in graph.parameters:
        parameters += _packed_parameters(parameter) if (parameter.segment, parameter.name) in names else [parameter]
    return msgspec.structs.replace(graph, segments=tuple(segments), parameters=tuple(parameters))


def _packed_parameters(parameter: Parameter) -> list[Parameter]:
    """The parameters that replace one weight: packed values and their factors."""
    rows, columns = parameter.shape
    factors = msgspec.structs.replace(parameter, name=f"{parameter.name}_scales", shape=(rows, columns // _GROUP))
    return [msgspec.structs.replace(parameter, shape=(rows, columns // 2), dtype="uint8"), factors]


def _packed(segment: Segment, names: set[str]) -> Segment:
    values = [
        _packed_value(value) if value.origin is ValueOrigin.PARAMETER and value.name in names else value
        for value in segment.values
    ]
    nodes = []
    for node in segment.nodes:
        inputs = tuple(
            msgspec.structs.replace(operand, dtype="uint4") if segment.values[operand.value].name in names else operand
            for operand in node.inputs
        )
        nodes.append(msgspec.structs.replace(node, inputs=inputs))
    return msgspec.structs.replace(segment, values=tuple(values), nodes=tuple(nodes))


def _packed_value(value: Value) -> Value:
    """The storage with half a byte for each 16-bit value, and 16 bits for each group."""
    num_elements = int(value.bytes) // 2
    return msgspec.structs.replace(value, bytes=num_elements // 2 + 2 * (num_elements // _GROUP))


def _weight(node: Node, segment: Segment, graph: OperatorGraph) -> str:
    """The weight that a product multiplies by, where its rows are whole groups; empty: none."""
    if node.operator not in _PRODUCTS or node.inputs[-1].dtype not in ("bfloat16", "float16"):
        return ""
    value = segment.values[node.inputs[-1].value]
    if value.origin is not ValueOrigin.PARAMETER:
        return ""
    segment_index = graph.segments.index(segment)
    parameters = {candidate.name: candidate for candidate in graph.parameters if candidate.segment == segment_index}
    parameter = parameters.get(value.name)
    has_full_groups = parameter is not None and len(parameter.shape) == 2 and parameter.shape[1] % _GROUP == 0
    return value.name if parameter is not None and has_full_groups and elements(parameter) else ""
