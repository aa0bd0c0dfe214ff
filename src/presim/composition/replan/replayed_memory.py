"""The caching allocator, carried out anew for an extended trace's blocks."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from presim.composition.allocator import replay_columns
from presim.composition.replan.insertion import Insertion, insert
from presim.trace.schema import COLUMNS, Kind, Trace

Ints = NDArray[np.int64]
_TABLES = ("signature", "scope", "operator", "site")


def with_replayed_memory(trace: Trace, pools: Ints) -> tuple[Trace, Ints]:
    """The trace with addresses and segments as the allocator gives them, and where its entries are [len(trace) + 1].

    ``object`` of blocks: any number that is unique; segments of the trace are none. ``pools``: of the allocator, by
    entry that allocates.
    """
    entries = np.flatnonzero(trace.mask(Kind.ALLOC, Kind.FREE, Kind.RETAG))
    names = ("kind", "object", "value")
    kinds, objects, values = (trace.columns[name][entries].astype(np.int64) for name in names)
    _, slots = np.unique(objects, return_inverse=True)
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


def _segment(trace: Trace, entry: int, address: int, size: int) -> Insertion:
    columns: dict[str, NDArray[np.generic]] = {
        name: np.full(1, -1 if name in _TABLES else 0, dtype) for name, dtype in COLUMNS.items()
    }
    for name in ("phase", "stream"):
        columns[name][:] = trace.columns[name][entry]
    columns["kind"][:], columns["object"][:], columns["value"][:] = Kind.SEGMENT_ALLOC, address, size
    return Insertion(entry, columns)
