"""Replay of PyTorch's caching allocator: which block each request gets, and when it takes memory from the device.

The rules are those of c10/cuda/CUDACachingAllocator.cpp without expandable segments: sizes are rounded to 512 bytes;
requests up to 1 MiB come from segments of 2 MiB, those below 10 MiB from segments of 20 MiB, others from segments of
their own, rounded to 2 MiB; the smallest free block that is large enough is taken, and split where enough is left.
Freed blocks are merged with free neighbours. Each stream has its own pools.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from presim.composition import allocator_loop
from presim.composition.allocator_loop import Column, Ints
from presim.system.compiled_loops import compile_for_pointers
from presim.trace.schema import Kind

_SMALL = 1 << 20  # kSmallSize: requests up to this are small
_SMALL_BUFFER = 2 << 20
_LARGE_BUFFER = 20 << 20
_MIN_LARGE = 10 << 20  # kMinLargeAlloc
_ROUND_LARGE = 2 << 20
_MIN_BLOCK = 512
_MANY = 100_000  # entries interpreted before the process loads the compiled loop (0.06 s; first compilation 2 s)
_BASE = 1 << 40  # address of the first segment


class _Pool:
    """Free blocks of one kind, by size and address."""

    def __init__(self, least_left: int) -> None:
        self.free: list[tuple[int, int]] = []
        self.least_left = least_left  # a block is split if more than this remains


class Replay:
    """The allocator's state between requests."""

    def __init__(self) -> None:
        self.segments: list[tuple[int, int]] = []  # address and bytes, in order of allocation
        self._pools: dict[tuple[int, bool], _Pool] = {}
        self._size: dict[int, int] = {}  # address -> bytes of every block
        self._before: dict[int, int] = {}  # neighbours within a segment
        self._after: dict[int, int] = {}
        self._pool: dict[int, _Pool] = {}
        self._is_free: dict[int, bool] = {}
        self._top = _BASE

    def alloc(self, size: int, stream: int = 0) -> tuple[int, int]:
        """Allocate a block for a request of rounded size; returns its address and bytes."""
        small = size <= _SMALL
        pool = self._pools.get((stream, small))
        if pool is None:
            pool = self._pools[stream, small] = _Pool(_MIN_BLOCK - 1 if small else _SMALL)
        index = bisect.bisect_left(pool.free, (size, 0))
        if index < len(pool.free):
            block_bytes, address = pool.free.pop(index)
        else:
            block_bytes, address = self._take(size, pool)
        spare_bytes = block_bytes - size
        if spare_bytes > pool.least_left:
            self._split(address, size, spare_bytes, pool)
            block_bytes = size
        self._is_free[address] = False
        return address, block_bytes

    def free(self, address: int) -> None:
        """Free the block at an address."""
        pool, size = self._pool[address], self._size[address]
        after, before = self._after.get(address), self._before.get(address)
        if after is not None and self._is_free[after]:
            size += self._remove(after, pool)
        if before is not None and self._is_free[before]:
            joined = self._size[before]
            pool.free.pop(bisect.bisect_left(pool.free, (joined, before)))
            self._link(before, self._after.get(address))
            self._forget(address)
            address, size = before, size + joined
        self._size[address] = size
        self._is_free[address] = True
        bisect.insort(pool.free, (size, address))

    def _take(self, size: int, pool: _Pool) -> tuple[int, int]:
        if size <= _SMALL:
            segment_bytes = _SMALL_BUFFER
        elif size < _MIN_LARGE:
            segment_bytes = _LARGE_BUFFER
        else:
            segment_bytes = -(-size // _ROUND_LARGE) * _ROUND_LARGE
        address = self._top
        self._top += segment_bytes + _ROUND_LARGE  # a gap, so that blocks of different segments are never neighbours
        self.segments.append((address, segment_bytes))
        self._size[address], self._pool[address] = segment_bytes, pool
        return segment_bytes, address

    def _split(self, address: int, size: int, spare_bytes: int, pool: _Pool) -> None:
        spare_address = address + size
        self._link(spare_address, self._after.get(address))
        self._link(address, spare_address)
        self._size[address], self._size[spare_address] = size, spare_bytes
        self._pool[spare_address], self._is_free[spare_address] = pool, True
        bisect.insort(pool.free, (spare_bytes, spare_address))

    def _remove(self, after: int, pool: _Pool) -> int:
        """Remove a free block from its pool to merge it with its predecessor; returns its bytes."""
        size, before = self._size[after], self._before[after]
        pool.free.pop(bisect.bisect_left(pool.free, (size, after)))
        self._link(before, self._after.get(after))
        self._forget(after)
        return size

    def _link(self, address: int, after: int | None) -> None:
        if after is None:
            self._after.pop(address, None)
        else:
            self._after[address] = after
            self._before[after] = address

    def _forget(self, address: int) -> None:
        for table in (self._size, self._before, self._after, self._pool, self._is_free):
            table.pop(address, None)


class _ReplayedEntries:
    """Number of entries replayed by this process. It decides which loop runs; results are the same."""

    entries = 0


@functools.cache
def compiled() -> Callable[[allocator_loop.Requests, allocator_loop.Blocks], int]:
    """`allocator_loop.carry_out` in machine code, for what `allocator_loop.requests` and `blocks` make."""
    nothing = np.zeros(0, np.int64)
    empty = allocator_loop.requests(nothing, nothing, nothing, nothing, 0, 0)
    return compile_for_pointers((allocator_loop,), allocator_loop.carry_out, empty, allocator_loop.blocks(empty, 0, 0))


def prefer_compiled() -> None:
    """Load the compiled loop, and use it from now on."""
    compiled()
    _ReplayedEntries.entries = _MANY


def replay_columns(
    kinds: Column, slots: Column, sizes: Column, streams: Column
) -> tuple[Ints, Ints, list[tuple[int, int, int]]]:
    """`replay` over columns; uses the compiled loop once a process has replayed enough entries."""
    _ReplayedEntries.entries += len(kinds)
    if _ReplayedEntries.entries < _MANY:
        return replay(kinds.tolist(), slots.tolist(), sizes.tolist(), streams.tolist())
    alloc, free = int(Kind.ALLOC), int(Kind.FREE)
    is_alloc = kinds == alloc
    live = int(np.cumsum(is_alloc.view(np.int8) - (kinds == free).view(np.int8), dtype=np.int32).max(initial=0))
    requests = allocator_loop.requests(kinds, slots, sizes, streams, alloc, free)
    columns = allocator_loop.blocks(requests, live, int(is_alloc.sum()))
    num_segments = compiled()(requests, columns)
    if num_segments == allocator_loop.FULL:
        return replay(kinds.tolist(), slots.tolist(), sizes.tolist(), streams.tolist())
    segments = [
        (entry_index, address, size)
        for entry_index, address, size in columns.new_segments[: 3 * num_segments].reshape(-1, 3).tolist()
    ]
    return columns.addresses, columns.block_bytes, segments


def replay(
    kinds: Sequence[int], slots: Sequence[int], sizes: Sequence[int], streams: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[tuple[int, int, int]]]:
    """Carry out ALLOC, FREE and RETAG entries.

    Returns: the address and bytes of each entry's block, and the new segments as (entry, address, bytes).
    """
    state, blocks = Replay(), dict[int, tuple[int, int]]()
    addresses, block_bytes = np.zeros(len(kinds), np.int64), np.zeros(len(kinds), np.int64)
    segments: list[tuple[int, int, int]] = []
    alloc, free = int(Kind.ALLOC), int(Kind.FREE)
    for entry_index, (kind, slot, size, stream) in enumerate(zip(kinds, slots, sizes, streams)):
        if kind == alloc:
            block = blocks[slot] = state.alloc(size, stream)
            if len(state.segments) > len(segments):
                segments.append((entry_index, *state.segments[-1]))
        elif kind == free:
            block = blocks.pop(slot)
            state.free(block[0])
        else:
            block = blocks[slot]
        addresses[entry_index], block_bytes[entry_index] = block
    return addresses, block_bytes, segments
