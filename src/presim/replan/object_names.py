"""What the entries of a trace refer to: memory blocks, recordings of events, launches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from presim.trace.schema import Kind, Trace

Ints = NDArray[np.int64]
DEFINES = {  # kind -> what the number in its `object` names from then on
    Kind.ALLOC: "block",
    Kind.SEGMENT_ALLOC: "segment",
    Kind.EVENT_RECORD: "recording",
    Kind.COLLECTIVE: "launch",
    Kind.FETCH: "request",
}
REFERS = {  # kind -> what the number in its `object` names
    Kind.FREE: "block",
    Kind.RETAG: "block",
    Kind.SEGMENT_FREE: "segment",
    Kind.STREAM_WAIT: "recording",
    Kind.EVENT_SYNC: "recording",
    Kind.FETCH_WAIT: "request",
}


def definitions(trace: Trace) -> Ints:
    """For each entry that names an object, the entry that defined it: itself or an earlier one; else -1.

    The first collective of a launch defines it for the others.
    """
    defined_at = np.full(len(trace), -1, np.int64)
    latest: dict[tuple[str, int], int] = {}
    named = np.flatnonzero(trace.mask(*DEFINES, *REFERS))
    kinds, objects = (trace.columns[name][named].tolist() for name in ("kind", "object"))
    for entry, kind, number in zip(named.tolist(), kinds, objects):
        if kind == Kind.COLLECTIVE:
            defined_at[entry] = latest.setdefault(("launch", number), entry)
        elif kind in DEFINES:
            latest[DEFINES[kind], number] = defined_at[entry] = entry
        else:
            defined_at[entry] = latest.get((REFERS[kind], number), -1)
    return defined_at
