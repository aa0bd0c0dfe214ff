"""The operator graph: the operators of one training step of a model as PyTorch runs them, without weights.

A graph is a list of **segments** in the order in which eager PyTorch runs them: the forward pass from the embedding to
the loss, then the backward pass. Equal blocks (the layers of a decoder) are one segment with a ``count``. A segment has
**values** (storages) and **nodes** (operators, views among them). Sizes are numbers or polynomials in the batch ``B``
and the sequence length ``S`` (`presim.composition.graph.sizes`).

Block ``i`` of a repeated backward segment belongs to block ``i`` of its forward segment; backward runs from the last.
"""

from __future__ import annotations

import enum

import msgspec

from presim.composition.graph.sizes import Size
from presim.system.files.field_bounds import Integer

MAGIC = "presim-graph"
VERSION = 1


class ValueOrigin(enum.StrEnum):
    """Origin of a value; the comments give the meaning of `Value.name`, ``segment`` and ``index``."""

    OWN = "own"  # written by a node of this segment
    PARAMETER = "parameter"  # name: of the parameter; in a repeated segment relative to the block, led by "."
    BUFFER = "buffer"  # likewise
    INPUT = "input"  # name: of the model's argument
    SEGMENT = "segment"  # value `index` of segment `segment`: of the same block where both are repeated
    CARRY = "carry"  # as SEGMENT for the first block; for later blocks value `again` of the block before


class Value(msgspec.Struct, frozen=True, array_like=True):
    """A storage, shared by tensors and their views."""

    origin: ValueOrigin
    bytes: Size
    name: str = ""
    segment: Integer = -1
    index: Integer = -1
    again: Integer = -1


class Operand(msgspec.Struct, frozen=True, array_like=True):
    """A tensor as a node sees it."""

    value: Integer  # index into the segment's values
    shape: Integer  # index into the graph's shapes
    dtype: str
    stride: Integer  # likewise: its strides, in elements; 0 where a dimension was expanded


class Node(msgspec.Struct, frozen=True, array_like=True):
    """One operator call."""

    operator: str  # e.g. aten::mm
    scope: str  # module path; in a repeated segment relative to the block, led by "."
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    view: bool = False  # outputs are views of inputs: no work
    written: tuple[Integer, ...] = ()  # positions of inputs that are written in place
    attributes: dict[str, Integer | str | list[Integer]] = {}  # layout of a product, dimensions, is_causal, …
    adds: bool = False  # autograd's sum of gradients, not part of a module


class Segment(msgspec.Struct, frozen=True):
    """Nodes that run one after the other, repeated ``count`` times."""

    name: str  # module path of its blocks, e.g. ``model.layers.*``; empty: no repeated block
    backward: bool
    values: tuple[Value, ...]
    nodes: tuple[Node, ...]
    first: Integer = 0  # number of the first block in its module list
    count: Integer = 1
    twin: Integer = -1  # of a backward segment: the forward segment it belongs to
    weights: bool = False  # the weight-gradient part of a split backward segment
    shared: bool = False  # computed by every pipeline stage itself: positions, masks
    gradients: dict[str, Integer] = {}  # parameter -> value, of the gradients that are complete when the segment ends


class Parameter(msgspec.Struct, frozen=True, array_like=True):
    """A parameter of the whole model, or of each block of a segment."""

    name: str  # relative to the block, led by ".", where `segment` is not -1
    shape: tuple[Integer, ...]
    dtype: str
    segment: Integer = -1  # the repeated forward segment


class OperatorGraph(msgspec.Struct, frozen=True):
    """A model's step as operators; immutable."""

    model: str  # name or path it was taken from
    root: str  # class of the outermost module
    segments: tuple[Segment, ...]
    shapes: tuple[tuple[Size, ...], ...]
    parameters: tuple[Parameter, ...]
    tensor_parallel: dict[str, str] = {}  # module pattern -> colwise, rowwise, …, as the model itself plans it
    traced: dict[str, Integer] = {}  # batch and sequence of the trace
    versions: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    buffer_bytes: Integer = 0  # of all buffers outside of repeated blocks, used or not: DDP broadcasts them
    magic: str = MAGIC
    version: Integer = VERSION

    def parameter_count(self) -> int:
        """Parameters of the whole model."""
        total = 0
        for parameter in self.parameters:
            elements = 1
            for size in parameter.shape:
                elements *= size
            total += elements * (self.segments[parameter.segment].count if parameter.segment >= 0 else 1)
        return total
