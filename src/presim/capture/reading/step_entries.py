"""Where in a trace the moments lie that marks give in records of the log."""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.capture.reading.log import Log
from presim.trace.schema import Kind, Trace

# Records of these kinds are added, merged or removed while a log becomes a trace. The number of others stays the same.
_CHANGED = (Kind.STEP, Kind.COLLECTIVE, Kind.FETCH, Kind.RETAG)


def with_entries(trace: Trace, log: Log) -> Trace:
    """The trace, with the positions in its step facts converted from records of the log to entries of the trace."""
    facts = trace.manifest.step
    records = np.array([facts.begin, *(phase.end for phase in facts.phases)], np.int64)
    begin, *phase_ends = _entries(records, log.records["kind"], trace.columns["kind"]).tolist()
    phases = tuple(msgspec.structs.replace(phase, end=entry) for phase, entry in zip(facts.phases, phase_ends))
    step = msgspec.structs.replace(facts, begin=begin, phases=phases)
    return dataclasses.replace(trace, manifest=msgspec.structs.replace(trace.manifest, step=step))


def _entries(
    records: NDArray[np.int64], record_kinds: NDArray[np.generic], entry_kinds: NDArray[np.generic]
) -> NDArray[np.int64]:
    """Convert numbers of preceding records to numbers of preceding entries."""
    preceding = np.concatenate([[0], np.cumsum(~np.isin(record_kinds, _CHANGED))])
    unchanged = np.flatnonzero(~np.isin(entry_kinds, _CHANGED))
    counts = preceding[np.minimum(records, len(record_kinds))]
    entries: NDArray[np.int64] = np.append(unchanged, len(entry_kinds))[np.minimum(counts, len(unchanged))]
    return entries
