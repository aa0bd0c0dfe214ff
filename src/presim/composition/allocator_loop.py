"""The allocator replay over columns, for millions of requests: plain Python here, compiled by numba where it is called.

It implements the rules of `presim.composition.allocator.Replay`, which explains them; a property test compares the two.
Blocks are indices into columns; each pool lists its free blocks by size and address. Measured on 780,000 requests: 1.1
s with objects, 0.03 s compiled.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Column: TypeAlias = NDArray[np.integer[Any]]
Number: TypeAlias = int | np.int64
SMALL = 1 << 20
SMALL_BUFFER = 2 << 20
LARGE_BUFFER = 20 << 20
MIN_LARGE = 10 << 20
ROUND_LARGE = 2 << 20
BASE = 1 << 40
CAPACITY = 16384  # most free blocks of one pool
FULL = -1  # returned if a pool exceeds its capacity
BLOCKS, SPARES, SEGMENTS, TOP = range(4)  # of the state: numbers given to blocks, spare ones, segments, next address


class Columns(NamedTuple):
    """Inputs and outputs of `carry_out`."""

    kinds: NDArray[np.uint8]
    slots: NDArray[np.int32]
    sizes: Ints
    streams: NDArray[np.uint16]
    addresses: Ints  # output: address of each entry's block
    block_bytes: Ints  # output: bytes of each entry's block
    block_of: NDArray[np.int32]  # slot -> block
    address: Ints  # per block, like the following columns
    size: Ints
    before: Ints
    after: Ints
    pool: Ints
    is_free: Ints
    spare: Ints  # numbers of blocks that are no more
    free: NDArray[np.int64]  # pool, place -> block
    counts: Ints  # number of free blocks per pool
    new_segments: NDArray[np.int64]  # output: (entry, address, bytes) of each new segment
    state: Ints  # see `BLOCKS`


TYPES = {"kinds": np.uint8, "slots": np.int32, "streams": np.uint16, "block_of": np.int32}  # others are int64


def columns(kinds: Column, slots: Column, sizes: Column, streams: Column, live: int, allocs: int) -> Columns:
    """Empty columns for so many requests, of which ``live`` hold a block at once.

    Pages of what is not written take no memory. Free blocks are bounded by `CAPACITY` of each pool.
    """
    pools = 2 * (int(streams.max(initial=0)) + 1)
    blocks = live + pools * CAPACITY + 2
    named_inputs = zip((kinds, slots, sizes, streams), ("kinds", "slots", "sizes", "streams"))
    typed = [np.ascontiguousarray(column, TYPES.get(name, np.int64)) for column, name in named_inputs]
    outputs = [np.empty(len(kinds), np.int64) for _ in range(2)]
    block_of = np.zeros(int(slots.max(initial=0)) + 1, np.int32)
    of_blocks = [np.empty(blocks, np.int64) for _ in range(7)]
    free, counts = np.empty((pools, CAPACITY), np.int64), np.zeros(pools, np.int64)
    new_segments = np.empty((allocs + 1, 3), np.int64)
    return Columns._make((*typed, *outputs, block_of, *of_blocks, free, counts, new_segments, np.zeros(4, np.int64)))


def carry_out(c: Columns, alloc: int, freed: int) -> int:
    """Carry out all entries; returns the number of new segments, or `FULL`."""
    c.state[:] = 0
    c.state[TOP] = BASE
    for entry_index in range(len(c.kinds)):
        kind, slot = c.kinds[entry_index], c.slots[entry_index]
        if kind == alloc:
            c.block_of[slot] = allocate(c, entry_index)
            if c.block_of[slot] == FULL:
                return FULL
        block = np.int64(c.block_of[slot])
        c.addresses[entry_index], c.block_bytes[entry_index] = c.address[block], c.size[block]
        if kind == freed and not release(c, block):
            return FULL
    return int(c.state[SEGMENTS])


def allocate(c: Columns, entry_index: int) -> Number:
    """A block for a request, or `FULL`: the smallest free one that is large enough, else a new segment; then split."""
    size = c.sizes[entry_index]
    is_small = size <= SMALL
    pool = 2 * np.int64(c.streams[entry_index]) + (1 if is_small else 0)
    free_index = first_of_size(c, pool, size)
    if free_index < c.counts[pool]:
        block = c.free[pool, free_index]
        take_out(c, pool, free_index)
    else:
        block = new_segment(c, pool, entry_index)
    c.is_free[block] = 0
    spare_bytes = c.size[block] - size
    if spare_bytes <= (511 if is_small else SMALL):
        return block  # type: ignore[no-any-return]
    spare_block = new_block(c)
    c.address[spare_block], c.size[spare_block], c.pool[spare_block] = c.address[block] + size, spare_bytes, pool
    c.before[spare_block], c.after[spare_block] = block, c.after[block]
    if c.after[block] >= 0:
        c.before[c.after[block]] = spare_block
    c.after[block], c.size[block] = spare_block, size
    return block if insert(c, pool, spare_block) else FULL


def new_segment(c: Columns, pool: Number, entry_index: int) -> Number:
    """A block that is a whole new segment, large enough for a request."""
    size = c.sizes[entry_index]
    if size <= SMALL:
        segment_bytes = SMALL_BUFFER
    elif size < MIN_LARGE:
        segment_bytes = LARGE_BUFFER
    else:
        segment_bytes = -(-size // ROUND_LARGE) * ROUND_LARGE
    block, segment, top = new_block(c), c.state[SEGMENTS], c.state[TOP]
    c.address[block], c.size[block], c.pool[block] = top, segment_bytes, pool
    c.before[block], c.after[block] = -1, -1
    c.new_segments[segment, 0], c.new_segments[segment, 1], c.new_segments[segment, 2] = entry_index, top, segment_bytes
    c.state[SEGMENTS], c.state[TOP] = segment + 1, top + segment_bytes + ROUND_LARGE
    return block


def new_block(c: Columns) -> Number:
    """A number for a block: a spare one if there is any."""
    if c.state[SPARES]:
        c.state[SPARES] -= 1
        return c.spare[c.state[SPARES]]  # type: ignore[no-any-return]
    c.state[BLOCKS] += 1
    return c.state[BLOCKS] - 1  # type: ignore[no-any-return]


def release(c: Columns, block: Number) -> bool:
    """Free a block and merge it with its free neighbours; False if its pool is full."""
    pool = c.pool[block]
    after, before = c.after[block], c.before[block]
    if after >= 0 and c.is_free[after] == 1:
        take_out(c, pool, position(c, pool, after))
        merge(c, block, after)
    if before >= 0 and c.is_free[before] == 1:
        take_out(c, pool, position(c, pool, before))
        merge(c, before, block)
        block = before
    return insert(c, pool, block)


def merge(c: Columns, block: Number, after: Number) -> None:
    """Make a block and the one behind it one block; the second one's number is spare."""
    c.size[block] += c.size[after]
    c.after[block] = c.after[after]
    if c.after[after] >= 0:
        c.before[c.after[after]] = block
    c.spare[c.state[SPARES]] = after
    c.state[SPARES] += 1


def first_of_size(c: Columns, pool: Number, size: Number) -> int:
    """Position of the first of a pool's free blocks that has at least so many bytes."""
    low, high = 0, c.counts[pool]
    while low < high:
        middle = (low + high) // 2
        if c.size[c.free[pool, middle]] < size:
            low = middle + 1
        else:
            high = middle
    return int(low)


def position(c: Columns, pool: Number, block: Number) -> int:
    """Position of a block among a pool's free blocks, ordered by size, then address."""
    low, high = 0, c.counts[pool]
    while low < high:
        middle = (low + high) // 2
        other = c.free[pool, middle]
        if c.size[other] < c.size[block] or (c.size[other] == c.size[block] and c.address[other] < c.address[block]):
            low = middle + 1
        else:
            high = middle
    return int(low)


def insert(c: Columns, pool: Number, block: Number) -> bool:
    """Insert a free block into a pool; False if the pool is full."""
    if c.counts[pool] >= CAPACITY:
        return False
    free_index = position(c, pool, block)
    for index in range(c.counts[pool], free_index, -1):
        c.free[pool, index] = c.free[pool, index - 1]
    c.free[pool, free_index] = block
    c.counts[pool] += 1
    c.is_free[block] = 1
    return True


def take_out(c: Columns, pool: Number, free_index: int) -> None:
    """Remove the block at a position from a pool's free blocks."""
    for index in range(free_index, c.counts[pool] - 1):
        c.free[pool, index] = c.free[pool, index + 1]
    c.counts[pool] -= 1
