"""Sizes of parameters."""

from __future__ import annotations

import math

from presim.composition.graph.graph_schema import Parameter
from presim.trace.dtypes import dtype_bytes


def elements(parameter: Parameter) -> int:
    """Number of elements of a parameter."""
    return math.prod(parameter.shape)


def size(parameter: Parameter) -> int:
    """Bytes of a parameter as the model computes with it."""
    return elements(parameter) * dtype_bytes(parameter.dtype)
