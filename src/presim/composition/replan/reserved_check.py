"""Whether the allocator, carried out anew, reserves for captured blocks what the capture has reserved.

It reserves less where blocks return late: one that another stream uses, as those of messages, is free only once that
stream has come so far. A trace does not say when that was.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from presim.composition.allocator import replay_columns
from presim.composition.replan.allocator_pools import pools_of
from presim.composition.replan.layer_names import layer_list, names_of
from presim.composition.replan.object_names import definitions
from presim.trace.schema import Kind, Trace
from presim.units import gib

_SHARE = 0.95  # of what is reserved; less is told


def sentences_on_reserved(traces: Sequence[Trace]) -> list[str]:
    """A sentence for the reader if fewer bytes are reserved anew for the trace that has reserved most; else none."""
    peaks_bytes = [*map(reserved_bytes, traces)]
    captured_bytes = max(peaks_bytes)
    anew_bytes = _reserved_anew_bytes(traces[peaks_bytes.index(captured_bytes)])
    if anew_bytes >= _SHARE * captured_bytes:
        return []
    return [
        f"Reserved memory is too small: carried out anew, PyTorch's allocator reserves {gib(anew_bytes)} for "
        f"the blocks of the capture, which has reserved {gib(captured_bytes)}. Blocks that other streams use, "
        "as those of messages, return later than the trace says."
    ]


def reserved_bytes(trace: Trace) -> int:
    """The most bytes of segments that a trace's allocator holds at once."""
    value = trace.columns["value"].astype(np.int64)
    allocated_bytes, freed_bytes = (
        np.where(trace.mask(kind), value, 0) for kind in (Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE)
    )
    return int(np.cumsum(allocated_bytes - freed_bytes).max(initial=0))


def _reserved_anew_bytes(trace: Trace) -> int:
    """Bytes of all segments that the allocator takes for a trace's blocks."""
    defined_at = definitions(trace)
    entries = np.flatnonzero(trace.mask(Kind.ALLOC, Kind.FREE) & (defined_at >= 0))
    kinds, sizes = (trace.columns[name][entries].astype(np.int64) for name in ("kind", "value"))
    _, slots = np.unique(defined_at[entries], return_inverse=True)
    path, _ = layer_list(trace)
    pools = pools_of(trace, names_of(trace.scopes, path), names_of(trace.operators, path))[entries]
    _, _, segments = replay_columns(
        kinds.astype(np.uint8), slots.reshape(-1).astype(np.int32), sizes, pools.astype(np.uint16)
    )
    return sum(size for _, _, size in segments)
