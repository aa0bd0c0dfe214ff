"""Arrows between streams: from the work before an event to the work that waited for the event."""

from __future__ import annotations

from presim.engine.timeline import Timeline
from presim.trace.schema import Kind, Trace


def find_flows(trace: Trace, timeline: Timeline) -> dict[int, tuple[int, ...]]:
    """Serial numbers of the arrows that start or end at each entry of device work.

    Only waits that delayed their stream have arrows: the stream was empty, and the awaited work ended last.
    """
    last: dict[int, int] = {}  # stream -> its latest device work
    recorded: dict[int, int] = {}  # recording -> the work before it
    pending: dict[int, list[int]] = {}  # stream -> work of other streams that its next work waits for
    flows: dict[int, tuple[int, ...]] = {}
    serial = 0
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
                if before < end[source] <= start[entry] and trace.columns["stream"][source] != stream:
                    serial += 1
                    flows[source] = (*flows.get(source, ()), serial)
                    flows[entry] = (*flows.get(entry, ()), serial)
            last[stream] = entry
    return flows
