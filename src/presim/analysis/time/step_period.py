"""Finds the period of a simulated step, so that further micro-batches need not be simulated.

The state of the simulation at a moment is determined by the entries in progress and all entries since the oldest of
these started. If two moments have the same state on every rank, except for a shift in time, and the program issues the
same entries next, then the time between them repeats as long as the program does. Additional micro-batches take exactly
that time each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from presim.analysis.time.steps import TraceSteps
from presim.engine.timeline import Timeline
from presim.trace.schema import Kind, Trace

Ints = NDArray[np.int64]
_CONTENT = ("kind", "phase", "stream", "signature", "scope", "operator", "host_ns", "value")


@dataclasses.dataclass(frozen=True)
class Stretch:
    """The period of one step: its start and end, and by rank the entries issued within it."""

    start_ns: int
    end_ns: int
    entries: tuple[slice, ...]

    @property
    def duration_ns(self) -> int:
        """Length of the period."""
        return self.end_ns - self.start_ns


@dataclasses.dataclass(frozen=True)
class _Issued:
    """The entries that one rank issues, without allocator entries that take no host time."""

    trace: Trace
    rows: Ints  # entries
    issue_ns: Ints
    start_ns: Ints
    end_ns: Ints

    @staticmethod
    def of(trace: Trace, timeline: Timeline) -> _Issued:
        is_memory = trace.mask(Kind.ALLOC, Kind.FREE, Kind.RETAG, Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE)
        rows = np.flatnonzero(~is_memory | (trace.columns["host_ns"] != 0))
        return _Issued(trace, rows, *(times[rows] for times in (timeline.issue_ns, timeline.start_ns, timeline.end_ns)))

    def rows_before(self, entry: int) -> int:
        """Number of rows before an entry."""
        return int(np.searchsorted(self.rows, entry))

    def column(self, name: str, part: slice) -> NDArray[Any]:
        return self.trace.columns[name][self.rows[part]]


def find_stretches(
    traces: Sequence[Trace], timelines: Sequence[Timeline], begins: Sequence[Ints], period: int
) -> list[Stretch] | None:
    """The period of every step; None if it cannot be proven for some step.

    ``begins``: by rank, the entries at which micro-batches begin. ``period``: number of micro-batches per period.
    """
    issued = [_Issued.of(trace, timeline) for trace, timeline in zip(traces, timelines)]
    steps = [trace.steps() for trace in traces]
    step_stretches: list[Stretch] = []
    for number, entries in enumerate(steps[0]):
        in_step = begins[0][(begins[0] >= entries.start) & (begins[0] < entries.stop)]
        limits = [
            slice(rank_issued.rows_before(rank_steps[number].start), rank_issued.rows_before(rank_steps[number].stop))
            for rank_issued, rank_steps in zip(issued, steps)
        ]
        moments = timelines[0].issue_ns[in_step]
        pairs = zip(moments.tolist(), moments[period:].tolist())
        stretch = next((proven for start, end in pairs if (proven := _prove_stretch(issued, limits, start, end))), None)
        if stretch is None:
            return None
        step_stretches.append(stretch)
    return step_stretches


def _prove_stretch(issued: Sequence[_Issued], limits: Sequence[slice], start_ns: int, end_ns: int) -> Stretch | None:
    """The stretch between two moments if every rank has the same state at both; else None."""
    entries = []
    for rank_issued, limit in zip(issued, limits):
        first, last = np.searchsorted(rank_issued.issue_ns, (start_ns, end_ns), "right").tolist()
        under_way = np.flatnonzero(rank_issued.end_ns[limit.start : first] > start_ns)
        since = min(2 * first - last, limit.start + int(under_way[0]) if len(under_way) else first)
        if since < limit.start or last >= limit.stop or first == last:
            return None
        if not _is_repeated(rank_issued, slice(since, first), last - first, start_ns, end_ns - start_ns):
            return None
        entries.append(slice(int(rank_issued.rows[first]), int(rank_issued.rows[last])))
    return Stretch(start_ns, end_ns, tuple(entries))


def _is_repeated(issued: _Issued, before: slice, shift: int, moment: int, later_ns: int) -> bool:
    """Whether the rows recur ``shift`` rows and ``later_ns`` later. Times after ``moment`` are not compared."""
    later = slice(before.start + shift, before.stop + shift)
    if not all(np.array_equal(issued.column(name, before), issued.column(name, later)) for name in _CONTENT):
        return False
    for times in (issued.issue_ns, issued.start_ns, issued.end_ns):
        first = np.minimum(times[before], moment + 1)
        if not np.array_equal(first, np.minimum(times[later] - later_ns, moment + 1)):
            return False
    return np.array_equal(_recordings_since_own(issued, before), _recordings_since_own(issued, later))


def _recordings_since_own(issued: _Issued, part: slice) -> Ints:
    """For each wait, the number of recordings between it and its own recording."""
    kind, serial = issued.column("kind", part), issued.column("object", part).astype(np.int64)
    records = np.cumsum(kind == Kind.EVENT_RECORD)
    recorded = np.flatnonzero(kind == Kind.EVENT_RECORD)
    if not len(recorded):
        return np.zeros(0, np.int64)
    waits = np.flatnonzero((kind == Kind.STREAM_WAIT) | (kind == Kind.EVENT_SYNC))
    recordings_between: Ints = records[waits] - serial[waits] + int(serial[recorded[0]])
    return recordings_between


def repeated_steps(steps: TraceSteps, step_stretches: Sequence[Stretch], rank: int, times: int) -> TraceSteps:
    """The steps with their stretches repeated ``times`` more; ``rank``: index of the rank in the simulation."""
    longer, late = [], 0
    for step, stretch in zip(steps.steps, step_stretches):
        added_ns = times * stretch.duration_ns
        longer.append(
            dataclasses.replace(
                step,
                start_ns=step.start_ns + late,
                end_ns=step.end_ns + late + added_ns,
                repeated_entries=stretch.entries[rank],
                times=times,
            )
        )
        late += added_ns
    return dataclasses.replace(steps, steps=tuple(longer))
