"""Memory that the allocator takes from the device for blocks that an extended trace has more of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from presim.composition.replan.insertion import Insertion
from presim.trace.schema import COLUMNS, Kind, Trace

Ints = NDArray[np.int64]
_SEGMENT_BYTES = 20 << 20  # PyTorch's kLargeBuffer (c10/core/CachingAllocator.h): for blocks of up to 10 MiB


def missing_segments(trace: Trace, address: int) -> list[Insertion]:
    """Segments to insert where the trace's blocks take more than its segments; ``address``: none of them lies beyond.

    They are a lower bound: real ones have gaps between blocks, too.
    """
    if not trace.mask(Kind.SEGMENT_ALLOC).any():
        return []
    values = trace.columns["value"].astype(np.int64)
    up, down = trace.mask(Kind.ALLOC, Kind.SEGMENT_FREE), trace.mask(Kind.FREE, Kind.SEGMENT_ALLOC)
    missing_bytes = np.cumsum(np.where(up, values, 0) - np.where(down, values, 0))
    num_segments = -(-np.maximum(np.maximum.accumulate(missing_bytes), 0) // _SEGMENT_BYTES)
    insertions = []
    for entry in np.flatnonzero(np.diff(num_segments, prepend=0)).tolist():
        count = int(num_segments[entry] - (num_segments[entry - 1] if entry else 0))
        columns: dict[str, NDArray[np.generic]] = {
            name: np.full(1, -1 if name in _TABLES else 0, dtype) for name, dtype in COLUMNS.items()
        }
        columns["kind"][:], columns["phase"][:] = Kind.SEGMENT_ALLOC, trace.columns["phase"][entry]
        columns["stream"][:] = trace.columns["stream"][entry]
        columns["object"][:], columns["value"][:] = address, count * _SEGMENT_BYTES
        address += count * _SEGMENT_BYTES
        insertions.append(Insertion(entry, columns))
    return insertions


_TABLES = ("signature", "scope", "operator", "site")
