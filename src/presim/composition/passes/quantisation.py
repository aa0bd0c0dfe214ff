"""Matrix products in FP8, FP4 or INT8: operands are cast to a narrow type, and the result has the model's type.

Parameters are stored unchanged and cast for each product, as in torchao's float8 training. A per-tensor scale needs one
more kernel to find the largest value; finer scales are computed during the cast.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import msgspec

from presim.composition.graph.graph_schema import Node, Operand, OperatorGraph, Segment, Value, ValueOrigin
from presim.composition.graph.sizes import Size, divide, product
from presim.errors import InputError
from presim.trace.dtypes import dtype_bytes

CAST, LARGEST = "quantise::cast", "quantise::largest"
_PRODUCTS = ("aten::mm", "aten::addmm")


@dataclasses.dataclass(frozen=True)
class Format:
    """A narrow operand format and its scaling."""

    dtype: str
    scaling: str  # see `Gemm.scaling`
    halves: bool = False  # two elements per byte
    largest: bool = False  # the scale needs a separate kernel that finds the largest value
    # gradients sum precisely, as by torchao's default; cuBLASLt's calls for them have no factors in captures
    precise: bool = False
    needs: str = "float8_e4m3fn"  # type that the GPU's matrix units must support


_LAYOUT = "NT"  # the casts write operands as 8-bit tensor cores read them: both along k
FORMATS = {
    "fp8-tensor": Format("float8_e4m3fn", "", largest=True, precise=True),
    "fp8-row": Format("float8_e4m3fn", "outer", precise=True),
    "fp8-block": Format("float8_e4m3fn", "block"),
    "mxfp8": Format("float8_e4m3fn", "block", needs="float4_e2m1fn_x2"),  # GPUs with FP4 units are those with MXFP8
    "int8": Format("int8", "outer", needs="int8"),  # W8A8, as torchao's int8 mixed-precision training
    "nvfp4": Format("float4_e2m1fn_x2", "block", halves=True, largest=True, needs="float4_e2m1fn_x2"),
}


def quantise(graph: OperatorGraph, format: Format) -> OperatorGraph:
    """The graph with linear layers of repeated blocks computed in a narrow format."""
    shapes = {shape: index for index, shape in enumerate(graph.shapes)}
    segments = tuple(_segment(segment, graph, format, shapes) for segment in graph.segments)
    return msgspec.structs.replace(graph, segments=segments, shapes=tuple(shapes))


def passes() -> dict[str, Callable[[OperatorGraph], OperatorGraph]]:
    """One pass per format."""
    return {name: functools.partial(quantise, format=format) for name, format in FORMATS.items()}


def check(names: Sequence[str], gpu: str, peak: Callable[[str], float | None]) -> None:
    """Raise if a GPU has no matrix units for a pass's type.

    ``peak``: FLOP/s of the GPU for a type, None if unsupported.

    Raises:
        InputError: lists the passes that the GPU supports.
    """
    for name in names:
        if name in FORMATS and not peak(FORMATS[name].needs):
            fit = ", ".join(other for other, format in FORMATS.items() if peak(format.needs))
            raise InputError(
                f"{gpu} has no matrix units for {name}; use {fit or 'no quantisation'}, or choose another --gpu"
            )


def _segment(segment: Segment, graph: OperatorGraph, format: Format, shapes: dict[tuple[Size, ...], int]) -> Segment:
    if not segment.name:
        return segment
    values, nodes = list(segment.values), []
    for node in segment.nodes:
        if node.operator not in _PRODUCTS or node.inputs[-1].dtype not in ("bfloat16", "float16"):
            nodes.append(node)
            continue
        narrow = []
        for operand in node.inputs[-2:]:
            size = product([*graph.shapes[operand.shape], dtype_bytes(format.dtype)])
            values.append(Value(ValueOrigin.OWN, _half(size) if format.halves else size))
            cast = Operand(len(values) - 1, operand.shape, format.dtype, operand.stride)
            if format.largest:
                values.append(Value(ValueOrigin.OWN, 4))
                scalar = shapes.setdefault((), len(shapes))
                largest = Operand(len(values) - 1, scalar, "float32", scalar)
                nodes += [Node(LARGEST, node.scope, (operand,), (largest,))]
                nodes += [Node(CAST, node.scope, (operand, largest), (cast,))]
            else:
                nodes.append(Node(CAST, node.scope, (operand,), (cast,)))
            narrow.append(cast)
        attributes = {**node.attributes, "scaling": format.scaling, "layout": _LAYOUT}
        if segment.backward and format.precise:
            attributes |= {"scaling": "", "sums": "precise"}
        inputs = (*node.inputs[:-2], *narrow)
        nodes.append(msgspec.structs.replace(node, inputs=inputs, attributes=attributes))
    return msgspec.structs.replace(segment, values=tuple(values), nodes=tuple(nodes))


def _half(size: Size) -> Size:
    halved = divide(size, 2)
    return size if halved is None else halved
