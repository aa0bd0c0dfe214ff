"""Finds the critical path of a step: the chain of kernels, messages and waits that determines its length.

The walk starts at the last device work of the rank that ends its step last. For each entry it continues at the latest
of these causes:

* the end of the previous entry on its stream,
* the recording of the event that its stream waits for,
* its issue by the host (plus the launch latency); the path then follows the host back to its last blocking wait,
* for a collective: the arrival of its last rank; the path then continues on that rank.

Time between the latest cause and the start counts as "device busy": work of other streams. Time in which a full launch
queue blocks the host counts as host time.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from presim.analysis.time.breakdown import is_transfer
from presim.analysis.time.steps import find_steps
from presim.engine.matching import match_collectives
from presim.engine.timeline import Timeline
from presim.result.critical_path import CriticalPath, Link
from presim.result.time import OUTSIDE_MODULES, Slice
from presim.trace.representatives import Representatives
from presim.trace.schema import WAITS, Kind, Trace
from presim.trace.signatures import Collective, family

Ints = NDArray[np.int64]
_LONGEST = 40
_ON_STREAM = (Kind.WORK, Kind.COLLECTIVE, Kind.EVENT_RECORD, Kind.STREAM_WAIT)


def critical_path(
    traces: Sequence[Trace],
    timelines: Mapping[int, Timeline],
    representatives: Representatives | None = None,
    *,
    launch_latency_ns: int,
) -> CriticalPath:
    """The critical path of the steady step of the rank that ends last."""
    ranks = [_Rank.of(trace, timelines[trace.manifest.rank], launch_latency_ns) for trace in traces]
    matches = match_collectives(traces, representatives).match
    members = _members(matches)
    steps = [find_steps(rank.trace, rank.timeline).steady for rank in ranks]
    last = max(range(len(ranks)), key=lambda index: (steps[index].end_ns, -index))
    walk = _Walk(ranks, matches, members, steps[last].start_ns)
    pieces = walk.walk_back_from(last, steps[last].end_ns)
    return _summary(ranks, pieces, steps[last].start_ns, steps[last].end_ns)


@dataclasses.dataclass(frozen=True)
class _Rank:
    """Lookup tables of one rank for the walk; -1 means none."""

    trace: Trace
    timeline: Timeline
    before: Ints  # [entry] the entry before it on its stream
    target: Ints  # [entry] of a wait: the recording
    blocked_by: Ints  # [entry] the last synchronisation before it that blocked the host
    last_on_stream: dict[int, tuple[Ints, Ints]]  # stream -> entries in order, and their ends
    latency_ns: int

    @classmethod
    def of(cls, trace: Trace, timeline: Timeline, latency_ns: int) -> _Rank:
        stream = trace.columns["stream"].astype(np.int64)
        on_stream = np.flatnonzero(trace.mask(*_ON_STREAM))
        before = np.full(len(trace), -1, np.int64)
        by_stream = {}
        for number in np.unique(stream[on_stream]).tolist():
            entries = on_stream[stream[on_stream] == number]
            before[entries[1:]] = entries[:-1]
            _skip_own_launch(trace, entries, before)
            by_stream[number] = (entries, timeline.end_ns[entries])
        waited = trace.mask(*WAITS) & (timeline.end_ns > timeline.start_ns)
        waiting_entry = np.where(waited, np.arange(len(trace)), -1)
        blocked_by = (
            np.concatenate([[-1], np.maximum.accumulate(waiting_entry)[:-1]]) if len(waiting_entry) else waiting_entry
        )
        return cls(
            trace, timeline, before, _recordings_of_waits(trace), blocked_by.astype(np.int64), by_stream, latency_ns
        )

    def ready_ns(self, entry: int) -> int:
        """When the entry was ready to start on this rank."""
        return max(self.end_of(int(self.before[entry])), self.issued_ns(entry))

    def end_of(self, entry: int) -> int:
        """End of an entry; a time in the distant past for none."""
        return int(self.timeline.end_ns[entry]) if entry >= 0 else -1

    def issued_ns(self, entry: int) -> int:
        """Earliest start on the device after the launch."""
        return int(self.timeline.issue_ns[entry]) + self.latency_ns

    def awaited_entry(self, sync: int) -> int:
        """The device entry that a host synchronisation waited for."""
        kind = Kind(int(self.trace.columns["kind"][sync]))
        if kind == Kind.EVENT_SYNC:
            return int(self.target[sync])
        streams = list(self.last_on_stream)
        if kind == Kind.STREAM_SYNC:
            streams = [stream for stream in streams if stream == int(self.trace.columns["stream"][sync])]
        last_entry = -1
        for stream in streams:
            entries, _ = self.last_on_stream[stream]
            index = int(np.searchsorted(entries, sync)) - 1
            if index >= 0 and self.end_of(int(entries[index])) > self.end_of(last_entry):
                last_entry = int(entries[index])
        return last_entry


def _skip_own_launch(trace: Trace, entries: Ints, before: Ints) -> None:
    """Give sends and receives of one launch the same predecessor: the entry before the launch."""
    serial = trace.columns["object"].astype(np.int64)[entries]
    joined = (trace.columns["kind"][entries] == Kind.COLLECTIVE) & (serial != 0)
    for index in np.flatnonzero(joined[1:] & joined[:-1] & (serial[1:] == serial[:-1])).tolist():
        before[entries[index + 1]] = before[entries[index]]


def _recordings_of_waits(trace: Trace) -> Ints:
    """For each wait, the last earlier recording with its serial."""
    kind, serial = trace.columns["kind"].astype(np.int64), trace.columns["object"].astype(np.int64)
    target = np.full(len(trace), -1, np.int64)
    recorded: dict[int, int] = {}
    events = np.flatnonzero(np.isin(kind, (Kind.EVENT_RECORD, Kind.STREAM_WAIT, Kind.EVENT_SYNC)))
    for entry, event_kind, event in zip(events.tolist(), kind[events].tolist(), serial[events].tolist()):
        if event_kind == Kind.EVENT_RECORD:
            recorded[event] = entry
        else:
            target[entry] = recorded.get(event, -1)
    return target


def _members(matches: Sequence[Ints]) -> dict[int, list[tuple[int, int]]]:
    """By rendezvous: the ranks, by index, and their entries."""
    members: dict[int, list[tuple[int, int]]] = {}
    for rank, match in enumerate(matches):
        for entry in np.flatnonzero(match >= 0).tolist():
            members.setdefault(int(match[entry]), []).append((rank, entry))
    return members


@dataclasses.dataclass(frozen=True)
class _Piece:
    """A segment of the path; ``entry``: its device work, or -1."""

    rank: int
    kind: str
    start_ns: int
    end_ns: int
    entry: int = -1


class _Walk:
    """Walks from the end of the step back to its start; `now_ns` is the current time."""

    def __init__(
        self,
        ranks: Sequence[_Rank],
        matches: Sequence[Ints],
        members: Mapping[int, list[tuple[int, int]]],
        start_ns: int,
    ) -> None:
        self._ranks, self._matches, self._members = ranks, matches, members
        self._start_ns = start_ns
        self._pieces: list[_Piece] = []
        self.now_ns = 0

    def walk_back_from(self, rank: int, end_ns: int) -> list[_Piece]:
        """The segments in chronological order."""
        self.now_ns = end_ns
        device = self._ranks[rank].trace.mask(Kind.WORK, Kind.COLLECTIVE)
        final_entries = np.flatnonzero(device & (self._ranks[rank].timeline.end_ns == end_ns))
        position: tuple[int, int] | None = (rank, int(final_entries[-1])) if len(final_entries) else None
        seen: set[tuple[int, int]] = set()
        while position is not None and position not in seen and self.now_ns > self._start_ns:
            seen.add(position)
            position = self._add_and_step_back(*position)
        if self.now_ns > self._start_ns:
            self._add_piece(rank if position is None else position[0], "device busy", self._start_ns)
        return self._pieces[::-1]

    def _add_piece(self, rank: int, kind: str, start_ns: int, entry: int = -1) -> None:
        start_ns = max(start_ns, self._start_ns)
        if start_ns < self.now_ns:
            self._pieces.append(_Piece(rank, kind, start_ns, self.now_ns, entry))
            self.now_ns = start_ns

    def _add_and_step_back(self, index: int, entry: int) -> tuple[int, int] | None:
        """Add the entry to the path, and find what it waited for."""
        rank = self._ranks[index]
        kind = Kind(int(rank.trace.columns["kind"][entry]))
        if kind in (Kind.WORK, Kind.COLLECTIVE):
            self._add_piece(index, self._kind_of(index, entry), int(rank.timeline.start_ns[entry]), entry)
        if kind == Kind.COLLECTIVE:
            index, entry = self._last_member_to_arrive(index, entry)
            rank = self._ranks[index]
        causes = [(rank.end_of(int(rank.before[entry])), int(rank.before[entry]))]
        if kind == Kind.STREAM_WAIT:
            causes.append((rank.end_of(int(rank.target[entry])), int(rank.target[entry])))
        cause_end_ns, cause = max(causes)
        issued = rank.issued_ns(entry) if kind in (Kind.WORK, Kind.COLLECTIVE) else int(rank.timeline.issue_ns[entry])
        self._add_piece(index, "device busy", max(cause_end_ns, min(issued, self.now_ns)))
        if cause >= 0 and cause_end_ns >= issued:
            return index, cause
        return self._continue_at_host(index, entry)

    def _continue_at_host(self, index: int, entry: int) -> tuple[int, int] | None:
        """Continue at the host, back to its last blocking synchronisation."""
        rank = self._ranks[index]
        self._add_piece(index, "launch latency", int(rank.timeline.issue_ns[entry]))
        sync = int(rank.blocked_by[entry])
        if sync < 0:
            self._add_piece(index, "host", self._start_ns)
            return None
        self._add_piece(index, "host", int(rank.timeline.end_ns[sync]))
        awaited = rank.awaited_entry(sync)
        if awaited < 0:
            return None
        self._add_piece(index, "synchronisation", rank.end_of(awaited))
        return index, awaited

    def _last_member_to_arrive(self, index: int, entry: int) -> tuple[int, int]:
        match = int(self._matches[index][entry])
        members = self._members.get(match, []) if match >= 0 else []
        ready_ns = self._ranks[index].ready_ns(entry)
        late = max(
            members, key=lambda member: (self._ranks[member[0]].ready_ns(member[1]), -member[0]), default=(index, entry)
        )
        return late if self._ranks[late[0]].ready_ns(late[1]) > ready_ns else (index, entry)

    def _kind_of(self, index: int, entry: int) -> str:
        signature = _signature(self._ranks[index].trace, entry)
        if isinstance(signature, Collective):
            return "communication"
        return "copy" if is_transfer(signature) else "compute"


def _signature(trace: Trace, entry: int) -> object:
    return trace.signatures[int(trace.columns["signature"][entry])]


def _summary(ranks: Sequence[_Rank], pieces: Sequence[_Piece], start_ns: int, end_ns: int) -> CriticalPath:
    duration_ns = max(end_ns - start_ns, 1)
    links = [_link(ranks, piece, start_ns) for piece in pieces]
    numbers = [piece.rank for piece in pieces]
    longest = sorted(links, key=lambda link: link.start_s - link.end_s)[:_LONGEST]

    def slices(names: Sequence[str]) -> list[Slice]:
        spent: Counter[str] = Counter()
        for name, piece in zip(names, pieces):
            spent[name] += piece.end_ns - piece.start_ns
        return [Slice(name, ns / 1e9, ns / duration_ns) for name, ns in spent.most_common()]

    return CriticalPath(
        length_s=(end_ns - start_ns) / 1e9,
        by_kind=slices([piece.kind for piece in pieces]),
        by_name=slices([link.name for link in links]),
        by_module=slices([re.sub(r"\.\d+(?=\.|$)", ".*", link.module) or OUTSIDE_MODULES for link in links]),
        by_rank=slices([f"rank {link.rank}" for link in links]),
        changes_of_rank=sum(first != second for first, second in itertools.pairwise(numbers)),
        longest=sorted(longest, key=lambda link: link.start_s),
    )


def _link(ranks: Sequence[_Rank], piece: _Piece, start_ns: int) -> Link:
    trace = ranks[piece.rank].trace
    name, module = piece.kind, ""
    if piece.entry >= 0:
        signature = _signature(trace, piece.entry)
        operator, scope = (int(trace.columns[column][piece.entry]) for column in ("operator", "scope"))
        name = trace.operators[operator] if operator >= 0 else family(signature)  # type: ignore[arg-type]
        if isinstance(signature, Collective):
            name = signature.kind
        module = trace.scopes[scope] if scope >= 0 else ""
    times = ((piece.start_ns - start_ns) / 1e9, (piece.end_ns - start_ns) / 1e9)
    return Link(trace.manifest.rank, piece.kind, name, module, *times)
