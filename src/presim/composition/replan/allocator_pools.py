"""Which of the allocator's pools a captured block is of: each stream of the program has its own.

A trace does not say for which stream a block was allocated. But blocks in one segment are of one pool, and so are
blocks that the same operator of a layer allocates. What is linked by either is one pool.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from presim.composition.replan.layer_names import Names
from presim.trace.schema import Kind, Trace

Ints = NDArray[np.int64]
_SIZE_BITS = 20  # blocks of one kind differ by less than a mebibyte, which the allocator does not split


def pools_of(trace: Trace, scopes: Names, operators: Names) -> Ints:
    """The pool of each allocation, numbered from 0; 0 for other entries [entries]."""
    pools = np.zeros(len(trace), np.int64)
    blocks, segments = np.flatnonzero(trace.mask(Kind.ALLOC)), np.flatnonzero(trace.mask(Kind.SEGMENT_ALLOC))
    if not len(blocks) or not len(segments):
        return pools
    objects, sizes = (trace.columns[name].astype(np.int64) for name in ("object", "value"))
    starts = np.unique(objects[segments])
    segment = np.maximum(np.searchsorted(starts, objects[blocks], side="right") - 1, 0)
    scope, operator, phase = (trace.columns[name][blocks].astype(np.int64) for name in ("scope", "operator", "phase"))
    kinds = np.stack([scopes.rests[scope], operators.rests[operator], phase, sizes[blocks] >> _SIZE_BITS])
    _, kind = np.unique(kinds, axis=1, return_inverse=True)
    pools[blocks] = _connected(segment, kind.reshape(-1))
    return pools


def _connected(first: Ints, second: Ints) -> Ints:
    """The number of each pair's group; pairs with the same first or the same second number are in one group."""
    labels = np.arange(int(first.max()) + 1)
    while True:
        least_of_second = np.full(int(second.max()) + 1, len(labels))
        np.minimum.at(least_of_second, second, labels[first])
        least = labels.copy()
        np.minimum.at(least, first, least_of_second[second])
        if (least == labels).all():
            break
        labels = least[least]
    _, groups = np.unique(labels[first], return_inverse=True)
    return groups.astype(np.int64)
