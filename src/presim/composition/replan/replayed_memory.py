"""The caching allocator, carried out anew for an extended trace's blocks."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from presim.composition.allocator import replay_columns
from presim.composition.replan.insertion import Insertion, insert
from presim.errors import InputError
from presim.trace.schema import COLUMNS, Kind, Trace

Ints = NDArray[np.int64]
_TABLES = ("signature", "scope", "operator", "site")


def with_replayed_memory(trace: Trace, pools: Ints) -> tuple[Trace, Ints]:
    """The trace with addresses and segments as the allocator gives them, and where its entries are [len(trace) + 1].

    ``object`` of blocks: any number that is unique; segments of the trace are none. ``pools``: of the allocator, by
    entry that allocates.

    Raises:
        InputError: an entry names a block that is not there.
    """
    entries = np.flatnonzero(trace.mask(Kind.ALLOC, Kind.FREE, Kind.RETAG))
    names = ("kind", "object", "value")
    kinds, objects, values = (trace.columns[name][entries].astype(np.int64) for name in names)
    _, slots = np.unique(objects, return_inverse=True)
    _check_lives(trace, entries, kinds, slots)
    sizes = np.where(kinds == Kind.RETAG, 0, values)
    addresses, block_bytes, segments = replay_columns(
        kinds.astype(np.uint8), slots.astype(np.int32), sizes, pools[entries].astype(np.uint16)
    )
    columns = dict(trace.columns)
    columns["object"], columns["value"] = columns["object"].copy(), columns["value"].copy()
    columns["object"][entries] = addresses
    is_block = kinds != Kind.RETAG
    columns["value"][entries[is_block]] = block_bytes[is_block]
    insertions = [_segment(trace, int(entries[row]), address, size) for row, address, size in segments]
    replayed = dataclasses.replace(trace, columns=columns)
    return insert(replayed, insertions, columns["object"].astype(np.int64))


def _check_lives(trace: Trace, entries: Ints, kinds: Ints, slots: Ints) -> None:
    """Check that each block is allocated first and freed last; ``slots``: of the block that each entry names."""
    order = np.argsort(slots, kind="stable")
    is_first = np.concatenate([[True], slots[order][1:] != slots[order][:-1]])
    is_last = np.concatenate([is_first[1:], [True]])
    is_wrong = ((kinds[order] == Kind.ALLOC) != is_first) | ((kinds[order] == Kind.FREE) & ~is_last)
    if is_wrong.any():
        entry = int(entries[order[np.flatnonzero(is_wrong)[0]]])
        kind = Kind(int(trace.columns["kind"][entry])).name
        raise InputError(
            f"copies refer to different things: {kind} at entry {entry} of rank {trace.manifest.rank} is of a block "
            "that is not there or freed too early, so no law says what a larger job does; capture it"
        )


def _segment(trace: Trace, entry: int, address: int, size: int) -> Insertion:
    columns: dict[str, NDArray[np.generic]] = {
        name: np.full(1, -1 if name in _TABLES else 0, dtype) for name, dtype in COLUMNS.items()
    }
    for name in ("phase", "stream"):
        columns[name][:] = trace.columns[name][entry]
    columns["kind"][:], columns["object"][:], columns["value"][:] = Kind.SEGMENT_ALLOC, address, size
    return Insertion(entry, columns)
