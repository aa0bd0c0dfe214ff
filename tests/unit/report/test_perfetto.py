"""Perfetto traces, read back with the protobuf classes that Perfetto publishes."""

from __future__ import annotations

import collections
import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

from presim.analysis.memory.blocks import allocated_bytes
from presim.report import perfetto
from presim.report.slices import module_slices, phase_slices
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Kind, Phase, Trace
from presim.trace.signatures import Gemm
from support import fakes, workloads

GEMM = Gemm(8, 8, 8, 1, "bfloat16")


def test_a_file_of_several_ranks_keeps_their_tracks_and_arrows_apart(tmp_path: Path) -> None:
    """Each rank is a process; what is read back by rank is what the rank has alone."""
    traces = {}
    for rank in (4, 2, 9):
        trace = workloads.launch_bound(kernels=8)
        manifest = msgspec.structs.replace(trace.manifest, rank=rank, world_size=16)
        traces[rank] = fakes.priced(dataclasses.replace(trace, manifest=manifest))
    timelines = {rank: fakes.simulate(priced) for rank, priced in traces.items()}
    perfetto.write(traces, timelines, 4, tmp_path / "t.pftrace")
    whole = pb.Trace.FromString((tmp_path / "t.pftrace").read_bytes())
    processes = [
        packet.track_descriptor.process.process_name
        for packet in whole.packet
        if packet.track_descriptor.process.process_name
    ]
    assert processes == ["rank 2 of 16", "rank 4 of 16", "rank 9 of 16"]
    tracks = [packet.track_descriptor.uuid for packet in whole.packet if packet.HasField("track_descriptor")]
    assert len(tracks) == len(set(tracks))
    by_sequence = collections.Counter(packet.trusted_packet_sequence_id for packet in whole.packet)
    alone = len(pb.Trace.FromString(perfetto.encode(traces[4], timelines[4])).packet)
    assert by_sequence == {1: alone, 2: alone, 3: alone}


class Decoded:
    """Slices by track, with interned names and annotations resolved."""

    def __init__(self, data: bytes) -> None:
        trace = pb.Trace.FromString(data)
        self.names: dict[int, str] = {}
        self.counters: dict[str, list[tuple[int, int]]] = collections.defaultdict(list)
        self.slices: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
        interned: dict[tuple[str, int], str] = {}
        open_slices: dict[int, list[dict[str, Any]]] = collections.defaultdict(list)
        for packet in trace.packet:
            for field in ("event_names", "debug_annotation_names", "debug_annotation_string_values"):
                for entry in getattr(packet.interned_data, field):
                    text = entry.str.decode() if field.endswith("values") else entry.name
                    interned[field, entry.iid] = text
            if packet.HasField("track_descriptor"):
                descriptor = packet.track_descriptor
                self.names[descriptor.uuid] = descriptor.name or descriptor.process.process_name
            if not packet.HasField("track_event"):
                continue
            event = packet.track_event
            track = self.names[event.track_uuid]
            if event.type == pb.TrackEvent.TYPE_COUNTER:
                self.counters[track].append((packet.timestamp, event.counter_value))
            elif event.type == pb.TrackEvent.TYPE_SLICE_BEGIN:
                item: dict[str, Any] = {"name": interned["event_names", event.name_iid], "start": packet.timestamp}
                item["flows"] = list(event.flow_ids)
                item["depth"] = len(open_slices[event.track_uuid])
                for note in event.debug_annotations:
                    key = interned["debug_annotation_names", note.name_iid]
                    kind = note.WhichOneof("value")
                    value = getattr(note, kind)
                    is_text = kind == "string_value_iid"
                    item[key] = interned["debug_annotation_string_values", value] if is_text else value
                open_slices[event.track_uuid].append(item)
                self.slices[track].append(item)
            else:
                item = open_slices[event.track_uuid].pop()
                assert packet.timestamp >= item["start"], "slices of a track are nested"
                item["end"] = packet.timestamp
        assert not any(open_slices.values()), "every slice that begins ends"


@pytest.fixture(scope="module")
def trace() -> Trace:
    return workloads.llama_8b(steps=2, layers=3)


@pytest.fixture(scope="module")
def decoded(trace: Trace) -> Decoded:
    priced = fakes.priced(trace)
    return Decoded(perfetto.encode(priced, fakes.simulate(priced)))


def test_tracks_are_named(decoded: Decoded) -> None:
    """One for each stream beside those that explain them."""
    assert list(decoded.names.values()) == [
        "rank 0 of 128",
        "steps",
        "phases",
        "modules",
        "host",
        "stream 0 (compute)",
        "stream 7 (communication)",
        "stream 11 (communication)",
        "memory allocated",
        "memory reserved",
        "memory: parameter",
        "memory: optimizer_state",
        "memory: activation",
        "memory: temporary",
    ]


def test_every_piece_of_device_work_is_a_slice_with_its_times(decoded: Decoded, trace: Trace) -> None:
    """Start and end to the nanosecond."""
    timeline = fakes.simulate(fakes.priced(trace))
    work = trace.mask(Kind.WORK, Kind.COLLECTIVE)
    expected = sorted(zip(timeline.start_ns[work].tolist(), timeline.end_ns[work].tolist()))
    streams = [item for name, track in decoded.slices.items() if name.startswith("stream") for item in track]
    assert sorted((item["start"], item["end"]) for item in streams) == expected


def test_collectives_carry_bytes_and_group(decoded: Decoded) -> None:
    """What a viewer shows below the timeline."""
    item = decoded.slices["stream 7 (communication)"][0]
    assert (item["name"], item["group"], item["group_size"]) == ("all_gather", "fsdp", 128)
    assert item["bytes"] == 436_207_616
    assert item["module"] == "model.layers.0"
    assert item["price_origin"] == "analytic"


def test_arrows_join_two_streams(decoded: Decoded) -> None:
    """Each begins at a collective and ends at the kernel that waited for it, or the other way round."""
    ends: dict[int, set[str]] = collections.defaultdict(set)
    for name, track in decoded.slices.items():
        for item in track:
            for flow in item["flows"]:
                ends[flow].add(name)
    assert ends
    assert all(len(tracks) == 2 for tracks in ends.values())


def test_modules_are_nested_within_phases(decoded: Decoded) -> None:
    """From the phase down to the innermost module."""
    path = [item["name"] for item in decoded.slices["modules"] if item["depth"] == 0]
    assert path[:4] == ["forward", "recompute", "backward", "recompute"]
    assert [item["name"] for item in decoded.slices["modules"][:2]] == ["forward", "model"]
    assert max(item["depth"] for item in decoded.slices["modules"]) == 5


def test_memory_counts_up_and_down(decoded: Decoded, trace: Trace) -> None:
    """The largest value of the counter is the peak."""
    values = [value for _, value in decoded.counters["memory allocated"]]
    assert max(values) == allocated_bytes(trace).max() == 497_549_312
    times = [time for time, _ in decoded.counters["memory allocated"]]
    assert times == sorted(times)


def test_an_empty_trace_can_be_drawn() -> None:
    """One empty slice for the run, no streams."""
    trace = TraceBuilder().trace()
    priced = fakes.priced(trace)
    assert "stream 0" not in Decoded(perfetto.encode(priced, fakes.simulate(priced))).slices


def test_the_same_input_gives_the_same_bytes(trace: Trace) -> None:
    """So that files can be compared."""
    priced = fakes.priced(trace)
    timeline = fakes.simulate(priced)
    assert perfetto.encode(priced, timeline) == perfetto.encode(priced, timeline)


def test_phases_follow_the_main_stream() -> None:
    """A run of kernels of one phase is one slice."""
    build = TraceBuilder()
    for phase in (Phase.FORWARD, Phase.FORWARD, Phase.BACKWARD):
        build.work(GEMM, phase=phase, scope="net.0")
    trace = build.trace()
    timeline = fakes.simulate(fakes.priced(trace))
    assert [item.name for item in phase_slices(trace, timeline)] == ["forward", "backward"]
    names = [item.name for item in module_slices(trace, timeline)]
    assert names == ["forward", "net", "0", "backward", "net", "0"]
