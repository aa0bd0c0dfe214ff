"""Which of the allocator's pools a captured block is of: each stream of the program has its own.

A trace does not say for which stream a block was allocated. But blocks in one segment are of one pool, and so are
blocks that the same operator of a layer allocates. What is linked by either is one pool. Some blocks have a segment for
themselves, as the largest one, and are linked to nothing. They are of the pool with most bytes if the allocator would
then have given each block of the capture the place that it has.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from presim.composition.allocator import replay_columns
from presim.composition.replan.layer_names import Names
from presim.composition.replan.object_names import definitions
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
    return _joined(pools, blocks, sizes, _placement(trace))


def _joined(pools: Ints, blocks: Ints, sizes: Ints, placement: Callable[[Ints], Ints]) -> Ints:
    """The pools, of which those that change no block's place are joined to the one with most bytes."""
    blocks = blocks[sizes[blocks] > 1 << _SIZE_BITS]  # smaller ones are apart, and take little
    numbers, index = np.unique(pools[blocks], return_inverse=True)
    if len(numbers) < 2:
        return pools
    largest = numbers[np.argmax(np.bincount(index.reshape(-1), sizes[blocks]))]
    places = placement(pools)
    for number in numbers[numbers != largest].tolist():
        joined = np.where(pools == number, largest, pools)
        if np.array_equal(placement(joined), places):
            pools = joined
    return pools


def _placement(trace: Trace) -> Callable[[Ints], Ints]:
    """What gives the address of each block that the allocator hands out from given pools."""
    defined_at = definitions(trace)
    entries = np.flatnonzero(trace.mask(Kind.ALLOC, Kind.FREE) & (defined_at >= 0))
    kinds, sizes = (trace.columns[name][entries].astype(np.int64) for name in ("kind", "value"))
    _, slots = np.unique(defined_at[entries], return_inverse=True)
    slots = slots.reshape(-1).astype(np.int32)
    return lambda pools: replay_columns(kinds.astype(np.uint8), slots, sizes, pools[entries].astype(np.uint16))[0]


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
