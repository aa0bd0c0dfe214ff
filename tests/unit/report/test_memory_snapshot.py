"""Memory snapshots: the structure that PyTorch's memory_viz reads."""

from __future__ import annotations

import importlib.util
import io
import pickle
import pickletools
from pathlib import Path
from typing import Any

import pytest

from presim.report import memory_snapshot
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Category, Trace
from support import fakes, workloads

KNOWN_OPCODES = (
    "PROTO FRAME MEMOIZE MARK STOP EMPTY_DICT EMPTY_LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 APPEND",
    "APPENDS SETITEM SETITEMS SHORT_BINUNICODE BINUNICODE BININT BININT1 BININT2 LONG1 BINFLOAT NEWTRUE",
    "NEWFALSE NONE BINGET LONG_BINGET BINPUT LONG_BINPUT LIST DICT",
)  # of MemoryViz.js


class Restricted(pickle.Unpickler):
    """Knows no class and no function: plain data only."""

    def find_class(self, module: str, name: str) -> Any:
        raise AssertionError(f"the snapshot refers to {module}.{name}")


def written(trace: Trace, path: Path) -> dict[str, Any]:
    memory_snapshot.write(trace, fakes.simulate(fakes.priced(trace)), path)
    content: dict[str, Any] = Restricted(io.BytesIO(path.read_bytes())).load()
    return content


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return written(workloads.llama_8b(steps=2, layers=3), tmp_path_factory.mktemp("snapshot") / "memory.pickle")


def test_it_has_the_layout_of_pytorchs_own(snapshot: dict[str, Any]) -> None:
    """The keys of torch.cuda.memory._snapshot()."""
    assert set(snapshot) == {"segments", "device_traces", "allocator_settings", "external_annotations"}
    block_keys = {"address", "size", "requested_size", "state", "frames"}
    assert all(set(block) == block_keys for segment in snapshot["segments"] for block in segment["blocks"])
    event_keys = {"action", "addr", "size", "stream", "time_us", "frames"}
    assert all(set(event) - {"category"} == event_keys for event in snapshot["device_traces"][0])


def test_blocks_tile_their_segments(snapshot: dict[str, Any]) -> None:
    """No gap, no overlap, and the sums are right."""
    for segment in snapshot["segments"]:
        position = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == position
            position += block["size"]
        assert position == segment["address"] + segment["total_size"]
        active = sum(block["size"] for block in segment["blocks"] if block["state"] == "active_allocated")
        assert active == segment["allocated_size"] == segment["active_size"]


def test_a_free_is_requested_and_completed(snapshot: dict[str, Any]) -> None:
    """The viewer ends a block at its free_completed; times never go back."""
    events = snapshot["device_traces"][0]
    actions = [event["action"] for event in events]
    assert actions.count("free_requested") == actions.count("free_completed") > 0
    assert {"alloc", "segment_alloc"} < set(actions)
    times = [event["time_us"] for event in events]
    assert times == sorted(times)


def test_frames_show_module_phase_and_category(snapshot: dict[str, Any]) -> None:
    """What a reader sees when he points at a block."""
    frames = next(event["frames"] for event in snapshot["device_traces"][0] if event["action"] == "alloc")
    assert [(frame["filename"], frame["name"]) for frame in frames] == [
        ("model.layers.0.mlp", "allocation"),
        ("phase", "other"),
        ("category", "parameter"),
    ]


def test_allocations_carry_their_category(snapshot: dict[str, Any]) -> None:
    """The viewer colours by it."""
    categories = {event["category"] for event in snapshot["device_traces"][0] if event["action"] == "alloc"}
    assert categories == {"parameter", "optimizer_state", "activation", "temporary"}


def test_the_viewer_finds_the_category_it_falls_back_on(snapshot: dict[str, Any]) -> None:
    """Where events have categories and none is "unknown", MemoryViz.js runs into a misspelt name."""
    assert "unknown" in {event.get("category") for event in snapshot["device_traces"][0]}


def test_an_expandable_segment_is_mapped_piece_by_piece(tmp_path: Path) -> None:
    """Blocks reach over the seams, so the viewer has to join the pieces: they are maps, not segments."""
    build = TraceBuilder()
    for address in (0x1000, 0x2000, 0x8000):
        build.segment(address, 0x1000)
    build.alloc(0x1800, 0x1000, category=Category.ACTIVATION)
    content = written(build.trace(), tmp_path / "memory.pickle")
    ranges = [(segment["address"], segment["total_size"]) for segment in content["segments"]]
    assert ranges == [(0x1000, 0x2000), (0x8000, 0x1000)]
    assert [block["state"] for block in content["segments"][0]["blocks"]] == [
        "inactive",
        "active_allocated",
        "inactive",
    ]
    assert {event["action"] for event in content["device_traces"][0]} == {"segment_map", "alloc", "snapshot"}


def test_neighbouring_segments_stay_apart(tmp_path: Path) -> None:
    """Two cudaMallocs that happen to touch are two segments."""
    build = TraceBuilder()
    build.segment(0x1000, 0x1000)
    build.segment(0x2000, 0x1000)
    build.alloc(0x1000, 0x1000)
    content = written(build.trace(), tmp_path / "memory.pickle")
    assert [segment["address"] for segment in content["segments"]] == [0x1000, 0x2000]


def test_the_allocation_that_failed_ends_the_list(tmp_path: Path) -> None:
    """As PyTorch records it, with what the device had left."""
    event = written(workloads.out_of_memory(), tmp_path / "memory.pickle")["device_traces"][0][-2]
    assert (event["action"], event["size"]) == ("oom", 5 << 29)


def test_the_viewer_knows_every_opcode(tmp_path: Path) -> None:
    """MemoryViz.js reads pickles of protocol 2 to 4 with an unpickler of its own that knows these opcodes."""
    known = {name for line in KNOWN_OPCODES for name in line.split()}
    trace, path = workloads.llama_8b(steps=2, layers=3), tmp_path / "memory.pickle"
    memory_snapshot.write(trace, fakes.simulate(fakes.priced(trace)), path)
    used = {opcode.name for opcode, _, _ in pickletools.genops(path.read_bytes())}
    assert used <= known


def test_pytorchs_own_reader_understands_it(snapshot: dict[str, Any]) -> None:
    """`torch.cuda._memory_viz` is plain Python, so it is loaded without the rest of torch."""
    torch = importlib.util.find_spec("torch")
    if torch is None or not torch.submodule_search_locations:
        pytest.skip("torch is not installed")
    path = Path(torch.submodule_search_locations[0]) / "cuda" / "_memory_viz.py"
    spec = importlib.util.spec_from_file_location("memory_viz", path)
    assert spec is not None
    assert spec.loader is not None
    viewer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(viewer)
    assert "total_allocated: 58.5MiB" in viewer.segsum(snapshot)
    assert "Device 0" in viewer.trace(snapshot)


def test_freed_segments_are_not_listed(tmp_path: Path) -> None:
    """Its events are."""
    build = TraceBuilder()
    build.segment(0x1000, 0x1000)
    build.segment(0x1000, 0x1000, freed=True)
    content = written(build.trace(), tmp_path / "memory.pickle")
    assert content["segments"] == []
    assert [event["action"] for event in content["device_traces"][0]] == ["segment_alloc", "segment_free", "snapshot"]
