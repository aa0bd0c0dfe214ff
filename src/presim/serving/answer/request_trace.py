"""Requests and steps as a Perfetto trace, for ui.perfetto.dev.

Each replica is a process with a track of steps and counters of running requests, waiting requests and used blocks.
Requests are one more process: each takes a free track with its waiting, prefill and decode phases.
"""

from __future__ import annotations

import heapq
from pathlib import Path
from typing import Any

import numpy as np

from presim.serving.engines.simulate_fleet import Served
from presim.serving.fast import serving_state
from presim.system.files import write_file

_MOST_REQUESTS = 20_000  # limit of the file; browsers cannot open more
_COUNTERS = {
    "running": serving_state.LOG_RUNNING,
    "waiting": serving_state.LOG_WAITING,
    "blocks in use": serving_state.LOG_USED,
}


class _Tracks:
    """Writes tracks, slices and counters; uuids are consecutive."""

    def __init__(self) -> None:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

        self.pb: Any = pb
        self.trace = pb.Trace()
        self.uuids = 0

    def track(self, name: str, parent: int = 0, *, counter: bool = False) -> int:
        self.uuids += 1
        descriptor = self.trace.packet.add().track_descriptor
        descriptor.uuid = self.uuids
        if parent:
            descriptor.parent_uuid, descriptor.name = parent, name
        else:
            descriptor.process.pid, descriptor.process.process_name = self.uuids, name
        if counter:
            descriptor.counter.SetInParent()
        return self.uuids

    def _event(self, track: int, kind: str, time_ns: int) -> Any:
        packet = self.trace.packet.add()
        packet.timestamp, packet.trusted_packet_sequence_id = time_ns, 1
        packet.track_event.type = getattr(self.pb.TrackEvent, kind)
        packet.track_event.track_uuid = track
        return packet.track_event

    def slice(self, track: int, name: str, begin: int, end: int, **arguments: int) -> None:
        event = self._event(track, "TYPE_SLICE_BEGIN", begin)
        event.name = name
        for key, value in arguments.items():
            note = event.debug_annotations.add()
            note.name, note.int_value = key, value
        self._event(track, "TYPE_SLICE_END", max(end, begin))

    def count(self, track: int, time_ns: int, value: int) -> None:
        self._event(track, "TYPE_COUNTER", time_ns).counter_value = value


def write(served: Served, path: Path) -> None:
    """Write the trace."""
    write_file(path, encode(served))


def encode(served: Served) -> bytes:
    """The trace in Perfetto's protobuf format."""
    tracks = _Tracks()
    for replica in np.unique(served.steps[:, serving_state.LOG_REPLICA]).tolist():
        process = tracks.track(f"replica {replica}")
        steps = served.steps[served.steps[:, serving_state.LOG_REPLICA] == replica]
        track = tracks.track("steps", process)
        counters = {name: tracks.track(name, process, counter=True) for name in _COUNTERS}
        for step in steps.tolist():
            name = "prefill" if step[serving_state.LOG_PREFILL] else "decode"
            tracks.slice(
                track, name, step[serving_state.LOG_START], step[serving_state.LOG_END],
                tokens=step[serving_state.LOG_TOKENS], requests=step[serving_state.LOG_SEQS],
                preempted=step[serving_state.LOG_PREEMPTED],
            )  # fmt: skip
            for counter, uuid in counters.items():
                tracks.count(uuid, step[serving_state.LOG_START], step[_COUNTERS[counter]])
    _requests(served, tracks)
    data: bytes = tracks.trace.SerializeToString(deterministic=True)
    return data


def _requests(served: Served, tracks: _Tracks) -> None:
    process = tracks.track("requests")
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    done = np.flatnonzero(served.finished)
    for item in done[np.argsort(served.sent[done], kind="stable")][:_MOST_REQUESTS].tolist():
        sent, scheduled, first, last = (
            int(column[item]) for column in (served.sent, served.scheduled, served.first, served.last)
        )
        while busy and busy[0][0] <= sent:
            heapq.heappush(free, heapq.heappop(busy)[1])
        track = heapq.heappop(free) if free else tracks.track("request", process)
        heapq.heappush(busy, (last, track))
        arguments = {"prompt": int(served.workload.prompt[item]), "output": int(served.workload.output[item])}
        tracks.slice(track, f"request {item}: waiting", sent, scheduled)
        tracks.slice(track, f"request {item}: prefill", scheduled, first, **arguments)
        tracks.slice(track, f"request {item}: decode", first, last, preemptions=int(served.preemptions[item]))
