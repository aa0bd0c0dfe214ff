"""Bytes of a trace's parameters."""

from __future__ import annotations

import numpy as np

from presim.trace.schema import Category, Kind, Trace


def parameter_bytes(trace: Trace) -> int:
    """Bytes of the blocks that are parameters to the end."""
    sizes: dict[int, int] = {}
    parameters: set[int] = set()
    entries = np.flatnonzero(trace.mask(Kind.ALLOC, Kind.FREE, Kind.RETAG))
    columns = (trace.columns[name][entries].tolist() for name in ("kind", "object", "value"))
    for kind, number, value in zip(*columns):
        if kind == Kind.ALLOC:
            sizes[number] = value
            parameters.discard(number)
        elif kind == Kind.FREE:
            sizes.pop(number, None)
            parameters.discard(number)
        elif value == Category.PARAMETER:
            parameters.add(number)
        else:
            parameters.discard(number)
    return sum(sizes.get(number, 0) for number in parameters)
