"""Products with weights of which two of every four values are kept (2:4), on GPUs with sparse tensor cores.

As torchao's ``SemiSparseLinear`` trains them: each forward pass prunes a weight and packs it twice, for its own product
and for that of the input's gradient (``_sparse_semi_structured_tile``). The gradient of the weight is a dense product.
Parameters stay whole, and so do optimizer states.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from presim.composition.graph.graph_schema import Node, Operand, OperatorGraph, Segment, Value, ValueOrigin
from presim.composition.graph.sizes import Size
from presim.composition.passes import quantisation
from presim.errors import InputError

NAME, TILE = "sparse24", "sparse::tile"
_PRODUCTS = ("aten::mm", "aten::addmm")
_SIDE_MULTIPLE = 64  # both sides of a weight are multiples of this (cuSPARSELt's 16-bit kernels)
_BYTES = (9, 8)  # packed bytes of 8 values in 16 bits: half of them, and 4 bits for the places of each two
_MIN_COMPUTE_MAJOR = 8  # compute capability of Ampere, the first GPUs with sparse tensor cores


def apply(graph: OperatorGraph) -> OperatorGraph:
    """The graph with 2:4 weights in the linear layers of repeated blocks.

    Raises:
        InputError: it has no weight that can be packed.
    """
    shapes = {shape: index for index, shape in enumerate(graph.shapes)}
    segments = list(graph.segments)
    for index, segment in enumerate(graph.segments):
        if segment.name and not segment.backward:
            segments[index], packed = _forward(segment, graph, shapes)
            for other_index, other in enumerate(graph.segments):
                if other.backward and other.twin == index:
                    segments[other_index] = _backward(segments[other_index], index, packed, segments[index])
    if segments == list(graph.segments):
        raise InputError(
            f"{NAME} finds no 16-bit weight in repeated blocks of {graph.model} with sides that are multiples of "
            f"{_SIDE_MULTIPLE}; leave it out"
        )
    return msgspec.structs.replace(graph, segments=tuple(segments), shapes=tuple(shapes))


def check(names: Sequence[str], gpu: str, vendor: str, compute_major: int) -> None:
    """Raise where a GPU has no sparse tensor cores, or another pass narrows the same products.

    Raises:
        InputError: with what to leave out.
    """
    narrow_formats = [name for name in names if name in quantisation.FORMATS]
    if NAME in names and narrow_formats:
        raise InputError(
            f"{NAME} and {narrow_formats[0]} change the same products, which is not composed; leave out one of them"
        )
    if NAME in names and (vendor != "nvidia" or compute_major < _MIN_COMPUTE_MAJOR):
        raise InputError(
            f"{gpu} has no 2:4 sparse products with a known price: NVIDIA's GPUs have them from Ampere on; leave out "
            f"{NAME}, or choose another --gpu"
        )


def _forward(
    segment: Segment, graph: OperatorGraph, shapes: dict[tuple[Size, ...], int]
) -> tuple[Segment, dict[str, int]]:
    """The segment with packed weights, and the place of each packed for the backward pass."""
    values, nodes = list(segment.values), list[Node]()
    packed: dict[int, int] = {}
    packed_for_backward: dict[str, int] = {}
    for node in segment.nodes:
        weight = _weight(node, segment, graph)
        if weight is None:
            nodes.append(node)
            continue
        if weight.value not in packed:
            rows, columns = (int(size) for size in graph.shapes[weight.shape])
            shape = (rows, columns * _BYTES[0] // _BYTES[1])
            size = shape[0] * shape[1]
            shape_index = shapes.setdefault(shape, len(shapes))
            stride = shapes.setdefault((shape[1], 1), len(shapes))
            packed[weight.value] = len(values)
            packed_for_backward[segment.values[weight.value].name] = len(values) + 1
            values += [Value(ValueOrigin.OWN, size), Value(ValueOrigin.OWN, size)]
            packed_operands = tuple(
                Operand(len(values) - 2 + direction, shape_index, "uint8", stride) for direction in range(2)
            )
            nodes.append(Node(TILE, node.scope, (weight,), packed_operands))
        nodes.append(_sparse(node, packed[weight.value]))
    return msgspec.structs.replace(segment, values=tuple(values), nodes=tuple(nodes)), packed_for_backward


def _backward(segment: Segment, twin: int, packed: dict[str, int], forward: Segment) -> Segment:
    """Gradients of inputs are products with weights that the forward pass packed."""
    values, nodes = list(segment.values), list[Node]()
    packed_numbers: dict[str, int] = {}
    for node in segment.nodes:
        name = _parameter(node, segment)
        if name not in packed:
            nodes.append(node)
            continue
        if name not in packed_numbers:
            packed_numbers[name] = len(values)
            values.append(Value(ValueOrigin.SEGMENT, forward.values[packed[name]].bytes, "", twin, packed[name]))
        nodes.append(_sparse(node, packed_numbers[name]))
    return msgspec.structs.replace(segment, values=tuple(values), nodes=tuple(nodes))


def _sparse(node: Node, value: int) -> Node:
    right = msgspec.structs.replace(node.inputs[-1], value=value)
    attributes = {**node.attributes, "sparsity": "2:4 b"}
    return msgspec.structs.replace(node, inputs=(*node.inputs[:-1], right), attributes=attributes)


def _parameter(node: Node, segment: Segment) -> str:
    """The weight that a product multiplies by; empty: none."""
    if node.operator not in _PRODUCTS:
        return ""
    value = segment.values[node.inputs[-1].value]
    return value.name if value.origin is ValueOrigin.PARAMETER else ""


def _weight(node: Node, segment: Segment, graph: OperatorGraph) -> Operand | None:
    if not _parameter(node, segment):
        return None
    right = node.inputs[-1]
    weight_shape = graph.shapes[right.shape]
    fits = all(isinstance(size, int) and size % _SIDE_MULTIPLE == 0 for size in weight_shape)
    return right if fits and right.dtype in ("bfloat16", "float16") else None
