"""Arrows between streams: from the work before an event to the work that waited for the event."""

from __future__ import annotations

from presim.engine.timeline import Timeline
from presim.trace.schema import Kind, Trace


def find_arrows(trace: Trace, timeline: Timeline) -> list[tuple[int, int]]:
    """Pairs of entries of device work: what was awaited, and what waited.

    Only waits that delayed their stream have arrows: the stream was empty, and the awaited work ended last.
    """
    last: dict[int, int] = {}  # stream -> its latest device work
    recorded: dict[int, int] = {}  # recording -> the work before it
    pending: dict[int, list[int]] = {}  # stream -> work of other streams that its next work waits for
    arrows: list[tuple[int, int]] = []
    columns = (trace.columns["kind"].tolist(), trace.columns["stream"].tolist(), trace.columns["object"].tolist())
    end, start = timeline.end_ns.tolist(), timeline.start_ns.tolist()
    for entry, (kind, stream, event) in enumerate(zip(*columns)):
        if kind == Kind.EVENT_RECORD and stream in last:
            recorded[event] = last[stream]
        elif kind == Kind.STREAM_WAIT and event in recorded:
            pending.setdefault(stream, []).append(recorded[event])
        elif kind in (Kind.WORK, Kind.COLLECTIVE):
            before = end[last[stream]] if stream in last else 0
            for source in pending.pop(stream, ()):
                if before < end[source] <= start[entry] and columns[1][source] != stream:
                    arrows.append((source, entry))
            last[stream] = entry
    return arrows


def find_flows(trace: Trace, timeline: Timeline) -> dict[int, tuple[int, ...]]:
    """Serial numbers from 1 of the arrows that start or end at each entry of device work (`find_arrows`)."""
    flows: dict[int, tuple[int, ...]] = {}
    for serial, pair in enumerate(find_arrows(trace, timeline), 1):
        for entry in pair:
            flows[entry] = (*flows.get(entry, ()), serial)
    return flows
