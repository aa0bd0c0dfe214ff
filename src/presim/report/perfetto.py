"""The timeline as a Perfetto trace, for ui.perfetto.dev.

It uses the generated protobuf classes of the ``perfetto`` package. We measured 0.05 s to import them and 2.3 us per
packet, so encoding by hand would gain nothing.

A file has the reported rank and up to `_MOST_RANKS` others that were simulated, each as a process of its own: messages
of Perfetto's format may be written one after the other.

Tracks of a rank, from top to bottom: steps, phases, modules (nested as in the model), host waits, one per stream, and
memory counters (allocated, reserved, allocated by category). Arrows lead from the work before an event to the work that
waited for the event.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from presim.analysis.memory.blocks import allocated_bytes, find_blocks, reserved_bytes
from presim.analysis.memory.peaks import device_clock_ns
from presim.analysis.time.steps import find_steps
from presim.cost.price import PricedTrace
from presim.engine.timeline import Timeline
from presim.report.flows import find_flows
from presim.report.slices import Slice, host_slices, module_slices, phase_slices, step_slices, stream_slices, streams
from presim.system.files import write_file
from presim.trace.schema import Category, Kind

if TYPE_CHECKING:
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

_MOST_RANKS = 15
_RANK_BITS = 32  # numbers of tracks and arrows of one rank fit in so many bits


def write(
    ranks: Mapping[int, PricedTrace], timelines: Mapping[int, Timeline], reported: int, path: str | os.PathLike[str]
) -> None:
    """Write the traces of the reported rank and of others to a file."""
    other_ranks = [rank for rank in sorted(ranks) if rank != reported][:_MOST_RANKS]
    shown_ranks = enumerate(sorted([reported, *other_ranks]))
    encoded = [encode(ranks[rank], timelines[rank], number) for number, rank in shown_ranks]
    write_file(path, b"".join(encoded))


def encode(priced: PricedTrace, timeline: Timeline, number: int = 0) -> bytes:
    """The trace of one rank in Perfetto's protobuf format; ``number``: its number in the file."""
    trace = priced.trace
    name = f"rank {trace.manifest.rank} of {trace.manifest.world_size}"
    writer = _Writer.for_rank(trace.manifest.rank, name, number)
    writer.add_slices("steps", step_slices(find_steps(trace, timeline)))
    writer.add_slices("phases", phase_slices(trace, timeline))
    writer.add_slices("modules", module_slices(trace, timeline))
    writer.add_slices("host", host_slices(trace, timeline))
    flows = find_flows(trace, timeline)
    for stream, name in streams(trace, timeline):
        writer.add_slices(name, stream_slices(priced, timeline, stream, flows))
    clock = device_clock_ns(trace, timeline)
    for name, values, kinds in (
        ("memory allocated", allocated_bytes(trace), (Kind.ALLOC, Kind.FREE)),
        ("memory reserved", reserved_bytes(trace), (Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE)),
    ):
        changes = trace.mask(*kinds)
        writer.counter(name, clock[changes].tolist(), values[changes].tolist())
    entry, category, change = find_blocks(trace).changes(trace)
    for member in Category:
        mine = category == member
        writer.counter(f"memory: {member.name.lower()}", clock[entry[mine]].tolist(), np.cumsum(change[mine]).tolist())
    return writer.finish()


@dataclasses.dataclass
class _Writer:
    """Appends packets. Names and values of annotations are interned: written once and referred to by number."""

    out: pb.Trace
    pb: Any  # the generated module, imported when needed
    number: int = 0  # of the rank in the file
    tracks: int = 0
    event_names: dict[str, int] = dataclasses.field(default_factory=dict)
    keys: dict[str, int] = dataclasses.field(default_factory=dict)
    values: dict[str, int] = dataclasses.field(default_factory=dict)

    @staticmethod
    def for_rank(rank: int, name: str, number: int) -> _Writer:
        """A writer with all tracks below one process track."""
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2

        writer = _Writer(perfetto_trace_pb2.Trace(), perfetto_trace_pb2, number)
        packet = writer._packet()
        packet.sequence_flags = perfetto_trace_pb2.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        packet.track_descriptor.uuid = writer.process
        packet.track_descriptor.child_ordering = perfetto_trace_pb2.TrackDescriptor.EXPLICIT
        packet.track_descriptor.process.pid = rank + 1  # 0 is the idle process in Perfetto
        packet.track_descriptor.process.process_name = name
        return writer

    @property
    def process(self) -> int:
        """uuid of the rank's own track; those of its children follow."""
        return (self.number << _RANK_BITS) + 1

    def add_slices(self, track: str, slices: list[Slice]) -> None:
        """Add a track of slices, ordered by start with parents before children."""
        uuid = self._track(track)
        open_ends: list[int] = []
        for item in slices:
            while open_ends and open_ends[-1] <= item.start_ns:
                self._event(uuid, open_ends.pop(), self.pb.TrackEvent.TYPE_SLICE_END)
            event = self._event(uuid, item.start_ns, self.pb.TrackEvent.TYPE_SLICE_BEGIN)
            event.name_iid = self._intern(self.event_names, item.name, "event_names")
            event.flow_ids.extend((self.number << _RANK_BITS) + flow for flow in item.flows)
            for key, value in item.details.items():
                self._annotate(event, key, value)
            open_ends.append(item.end_ns)
        while open_ends:
            self._event(uuid, open_ends.pop(), self.pb.TrackEvent.TYPE_SLICE_END)

    def counter(self, track: str, times_ns: list[int], values: list[int]) -> None:
        """Add a counter track of bytes over time."""
        if not values:
            return
        uuid = self._track(track, counter=True)
        for time_ns, value in zip(times_ns, values):
            self._event(uuid, time_ns, self.pb.TrackEvent.TYPE_COUNTER).counter_value = value

    def finish(self) -> bytes:
        """Return the whole trace."""
        data: bytes = self.out.SerializeToString(deterministic=True)
        return data

    def _packet(self) -> pb.TracePacket:
        packet = self.out.packet.add()
        packet.trusted_packet_sequence_id = self.number + 1
        return packet

    def _track(self, name: str, *, counter: bool = False) -> int:
        self.tracks += 1
        descriptor = self._packet().track_descriptor
        descriptor.uuid = self.process + self.tracks
        descriptor.parent_uuid = self.process
        descriptor.name = name
        descriptor.sibling_order_rank = self.tracks
        if counter:
            descriptor.counter.unit = self.pb.CounterDescriptor.UNIT_SIZE_BYTES
        return self.process + self.tracks

    def _event(self, uuid: int, time_ns: int, kind: int) -> pb.TrackEvent:
        packet = self._packet()
        packet.timestamp = time_ns
        packet.sequence_flags = self.pb.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        packet.track_event.track_uuid = uuid
        packet.track_event.type = kind
        return packet.track_event

    def _annotate(self, event: pb.TrackEvent, key: str, value: str | int | float) -> None:
        annotation = event.debug_annotations.add()
        annotation.name_iid = self._intern(self.keys, key, "debug_annotation_names")
        if isinstance(value, str):
            annotation.string_value_iid = self._intern(self.values, value, "debug_annotation_string_values")
        elif isinstance(value, int):
            annotation.int_value = value
        else:
            annotation.double_value = value

    def _intern(self, table: dict[str, int], text: str, field: str) -> int:
        """Number of an interned text. A new text is added to the last packet, which is the one that uses it."""
        if text not in table:
            table[text] = len(table) + 1
            entry = getattr(self.out.packet[-1].interned_data, field).add()
            entry.iid = table[text]
            if field == "debug_annotation_string_values":
                entry.str = text.encode()
            else:
                entry.name = text
        return table[text]
