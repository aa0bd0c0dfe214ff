"""What the entries of a trace refer to: memory blocks, recordings of events, launches, requests to data loaders."""

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

    The first collective of a launch defines it for the others; 0 is no launch.
    """
    defined_at = np.full(len(trace), -1, np.int64)
    for family in sorted(set(DEFINES.values())):
        defining, referring = ([kind for kind, name in table.items() if name == family] for table in (DEFINES, REFERS))
        entries = np.flatnonzero(trace.mask(*defining, *referring))
        numbers = trace.columns["object"][entries].astype(np.int64)
        if family == "launch":
            entries, numbers = entries[numbers != 0], numbers[numbers != 0]
            _, firsts, launches = np.unique(numbers, return_index=True, return_inverse=True)
            defined_at[entries] = entries[firsts][launches]
            continue
        order = np.argsort(numbers, kind="stable")
        is_defining = trace.mask(*defining)[entries[order]]
        latest = np.maximum.accumulate(np.where(is_defining, np.arange(len(order)), -1))
        is_same = (latest >= 0) & (numbers[order][latest] == numbers[order])
        defined_at[entries[order][is_same]] = entries[order][latest[is_same]]
    return defined_at
