"""Where a simulated job repeats itself: a stretch of time after which every rank is as it was, one stretch further on.

The state of the simulation at a moment follows from what is under way then and what happened since that began. Where
all of that lies the same at two moments, on every rank, and the same is asked next, the time between them repeats for
as long as the program does. Micro-batches that a plan has more of then take as long again, to the nanosecond.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from presim.analysis.time.steps import Steps
from presim.engine.timeline import Timeline
from presim.trace.schema import Kind, Trace

Ints = NDArray[np.int64]
_CONTENT = ("kind", "phase", "stream", "signature", "scope", "operator", "host_ns", "value")


@dataclasses.dataclass(frozen=True)
class Stretch:
    """What repeats in one step: from one moment to another, and by rank the entries that its host asks for then."""

    start_ns: int
    end_ns: int
    entries: tuple[slice, ...]

    @property
    def duration_ns(self) -> int:
        """How long it takes."""
        return self.end_ns - self.start_ns


@dataclasses.dataclass(frozen=True)
class _Asked:
    """What one rank asks for, without memory: what the allocator does takes no time of its own here."""

    trace: Trace
    rows: Ints  # entries
    issue_ns: Ints
    start_ns: Ints
    end_ns: Ints

    @staticmethod
    def of(trace: Trace, timeline: Timeline) -> _Asked:
        is_memory = trace.mask(Kind.ALLOC, Kind.FREE, Kind.RETAG, Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE)
        rows = np.flatnonzero(~is_memory | (trace.columns["host_ns"] != 0))
        return _Asked(trace, rows, *(times[rows] for times in (timeline.issue_ns, timeline.start_ns, timeline.end_ns)))

    def place(self, entry: int) -> int:
        """How many of its rows lie before an entry."""
        return int(np.searchsorted(self.rows, entry))

    def column(self, name: str, part: slice) -> NDArray[Any]:
        return self.trace.columns[name][self.rows[part]]


def stretches(
    traces: Sequence[Trace], timelines: Sequence[Timeline], begins: Sequence[Ints], period: int
) -> list[Stretch] | None:
    """A stretch of every step; None where some step has none that can be proven.

    ``begins``: by rank, the entries at which micro-batches begin. ``period``: how many of them repeat together.
    """
    asked = [_Asked.of(trace, timeline) for trace, timeline in zip(traces, timelines)]
    steps = [trace.steps() for trace in traces]
    found: list[Stretch] = []
    for number, entries in enumerate(steps[0]):
        mine = begins[0][(begins[0] >= entries.start) & (begins[0] < entries.stop)]
        limits = [slice(one.place(own[number].start), one.place(own[number].stop)) for one, own in zip(asked, steps)]
        moments = timelines[0].issue_ns[mine]
        pairs = zip(moments.tolist(), moments[period:].tolist())
        stretch = next((one for start, end in pairs if (one := _proven(asked, limits, start, end))), None)
        if stretch is None:
            return None
        found.append(stretch)
    return found


def _proven(asked: Sequence[_Asked], limits: Sequence[slice], start_ns: int, end_ns: int) -> Stretch | None:
    entries = []
    for one, limit in zip(asked, limits):
        first, last = np.searchsorted(one.issue_ns, (start_ns, end_ns), "right").tolist()
        under_way = np.flatnonzero(one.end_ns[limit.start : first] > start_ns)
        since = min(2 * first - last, limit.start + int(under_way[0]) if len(under_way) else first)
        if since < limit.start or last >= limit.stop or first == last:
            return None
        if not _repeats(one, slice(since, first), last - first, start_ns, end_ns - start_ns):
            return None
        entries.append(slice(int(one.rows[first]), int(one.rows[last])))
    return Stretch(start_ns, end_ns, tuple(entries))


def _repeats(one: _Asked, before: slice, shift: int, moment: int, later_ns: int) -> bool:
    """Whether entries come again ``shift`` rows and ``later_ns`` further on, as far as a moment shows them."""
    again = slice(before.start + shift, before.stop + shift)
    if not all(np.array_equal(one.column(name, before), one.column(name, again)) for name in _CONTENT):
        return False
    for times in (one.issue_ns, one.start_ns, one.end_ns):
        seen = np.minimum(times[before], moment + 1)
        if not np.array_equal(seen, np.minimum(times[again] - later_ns, moment + 1)):
            return False
    return np.array_equal(_waited_for(one, before), _waited_for(one, again))


def _waited_for(one: _Asked, part: slice) -> Ints:
    """For each wait how many recordings lie between it and the one that it is for."""
    kind, serial = one.column("kind", part), one.column("object", part).astype(np.int64)
    records = np.cumsum(kind == Kind.EVENT_RECORD)
    recorded = np.flatnonzero(kind == Kind.EVENT_RECORD)
    if not len(recorded):
        return np.zeros(0, np.int64)
    waits = np.flatnonzero((kind == Kind.STREAM_WAIT) | (kind == Kind.EVENT_SYNC))
    found: Ints = records[waits] - serial[waits] + int(serial[recorded[0]])
    return found


def repeated_steps(steps: Steps, found: Sequence[Stretch], rank: int, times: int) -> Steps:
    """The steps with their stretches so many times more; ``rank``: its place among the simulated ones."""
    longer, late = [], 0
    for step, stretch in zip(steps.steps, found):
        more = times * stretch.duration_ns
        longer.append(
            dataclasses.replace(
                step,
                start_ns=step.start_ns + late,
                end_ns=step.end_ns + late + more,
                again=stretch.entries[rank],
                times=times,
            )
        )
        late += more
    return dataclasses.replace(steps, steps=tuple(longer))
