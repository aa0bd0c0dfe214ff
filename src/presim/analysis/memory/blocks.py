"""The allocator's blocks: their lifetimes, and the memory held at any moment.

Of a process with several GPUs, only blocks of the fullest one count.
"""

from __future__ import annotations

import dataclasses
import re

import numpy as np
from numpy.typing import NDArray

from presim.trace.schema import Category, HostCall, Kind, Trace

Ints = NDArray[np.int64]
FULL_GPU = re.compile(r"GPU (\d+) has a total capacity")  # in PyTorch's out-of-memory message


@dataclasses.dataclass(frozen=True)
class Blocks:
    """One element per allocated block, ordered by address and then time. Tags have the same order."""

    alloc: Ints  # entry that allocated it
    free: Ints  # entry that freed it; len(trace) if none did
    bytes: Ints  # as rounded by the allocator
    tag_block: Ints  # for each RETAG within a block's lifetime: index of the block
    tag_entry: Ints  # for each RETAG: its entry
    tag_category: Ints  # for each RETAG: its category

    def live_at(self, entry: int) -> Ints:
        """Indices of the blocks that are live after the entry."""
        return np.flatnonzero((self.alloc <= entry) & (entry < self.free))

    def categories_at(self, entry: int) -> Ints:
        """`Category` of every block at an entry: its last tag so far.

        Before its first tag, a block has the category of that tag, because it was allocated for that purpose.
        """
        category = np.full(len(self.alloc), int(Category.OTHER), np.int64)
        category[self.tag_block[::-1]] = self.tag_category[::-1]  # reversed: the first tag of each block remains
        so_far = self.tag_entry <= entry
        category[self.tag_block[so_far]] = self.tag_category[so_far]
        return category

    def changes(self, trace: Trace) -> tuple[Ints, Ints, Ints]:
        """Changes of each category: entry, `Category` and bytes, in order of entries."""
        first = self.categories_at(-1)
        before = np.where(
            np.concatenate([[False], self.tag_block[1:] == self.tag_block[:-1]]) if len(self.tag_block) else False,
            np.roll(self.tag_category, 1),
            first[self.tag_block],
        )
        last, freed = self.categories_at(len(trace)), self.free < len(trace)
        size = self.bytes[self.tag_block]
        entry = np.concatenate([self.alloc, self.tag_entry, self.tag_entry, self.free[freed]])
        category = np.concatenate([first, before, self.tag_category, last[freed]])
        change = np.concatenate([self.bytes, -size, size, -self.bytes[freed]])
        order = np.argsort(entry, kind="stable")
        return entry[order], category[order], change[order]


def find_blocks(trace: Trace) -> Blocks:
    """Match every allocation with its free, and every tag with the live block at its address."""
    rows = np.flatnonzero(trace.mask(Kind.ALLOC, Kind.FREE) & _is_on_fullest_gpu(trace) | trace.mask(Kind.RETAG))
    address = trace.columns["object"].astype(np.int64)[rows]
    order = np.lexsort((rows, address))
    rows, address = rows[order], address[order]
    kind, value = trace.columns["kind"][rows], trace.columns["value"].astype(np.int64)[rows]
    is_alloc = kind == Kind.ALLOC
    alloc = np.flatnonzero(is_alloc)
    owner = np.cumsum(is_alloc) - 1  # the last allocation so far, at any address
    alive = owner >= 0
    alive[alive] = address[alloc[owner[alive]]] == address[alive]  # keep it only if it is at this address
    frees = np.flatnonzero((kind == Kind.FREE) & alive)
    free = np.full(len(alloc), len(trace), np.int64)
    free[owner[frees][::-1]] = rows[frees][::-1]  # reversed: the first free after an allocation remains
    tags = np.flatnonzero((kind == Kind.RETAG) & alive)
    tags = tags[rows[tags] < free[owner[tags]]]
    return Blocks(rows[alloc], free, value[alloc], owner[tags], rows[tags], value[tags])


def allocated_bytes(trace: Trace) -> Ints:
    """Sum of live blocks after each entry, as torch.cuda.memory_allocated() returns it."""
    return _running_sum(trace, Kind.ALLOC, Kind.FREE)


def reserved_bytes(trace: Trace) -> Ints:
    """Sum of live segments after each entry, as torch.cuda.memory_reserved() returns it."""
    return _running_sum(trace, Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE)


def pinned_host_bytes(trace: Trace) -> int | None:
    """Largest sum of locked host memory; None if the trace was not captured and does not know."""
    if trace.manifest.origin != "captured":
        return None
    rows = trace.mask(Kind.HOST_CALL)
    call, size = (trace.columns[name].astype(np.int64)[rows] for name in ("object", "value"))
    locked = np.cumsum(np.where(call == HostCall.LOCK, size, 0) - np.where(call == HostCall.UNLOCK, size, 0))
    return max(int(locked.max(initial=0)), 0)


def _running_sum(trace: Trace, up: Kind, down: Kind) -> Ints:
    return _sum_of(trace, up, down, _is_on_fullest_gpu(trace))


def _sum_of(trace: Trace, up: Kind, down: Kind, counts: NDArray[np.bool_] | bool) -> Ints:
    kind, value = trace.columns["kind"], np.where(counts, trace.columns["value"].astype(np.int64), 0)
    return np.cumsum(np.where(kind == up, value, 0) - np.where(kind == down, value, 0))


def peaks_by_gpu(trace: Trace) -> list[int]:
    """Peak of reserved memory on each GPU of the process, bytes."""
    gpu = trace.columns["stream"]
    sums = (
        _sum_of(trace, Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE, gpu == number) for number in range(trace.manifest.devices)
    )
    return [max(int(reserved.max(initial=0)), 0) for reserved in sums]


def fullest_gpu(trace: Trace) -> int:
    """The GPU of the process that an allocation failed on, or else that reserves most."""
    if full := FULL_GPU.search(trace.manifest.error):
        return int(full.group(1))
    peaks = peaks_by_gpu(trace)
    return peaks.index(max(peaks))


def _is_on_fullest_gpu(trace: Trace) -> NDArray[np.bool_] | bool:
    """Mask of the entries whose memory counts; True: all, because the process has one GPU."""
    return trace.columns["stream"] == fullest_gpu(trace) if trace.manifest.devices > 1 else True
