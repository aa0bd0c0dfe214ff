"""Memory snapshots: the structure that PyTorch's memory_viz reads."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import pytest

from presim.report import memory_snapshot
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Category, Trace
from support import fakes, workloads


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
    assert all(set(event) == event_keys for event in snapshot["device_traces"][0])


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


def test_a_block_across_two_pieces_joins_them(tmp_path: Path) -> None:
    """Expandable segments grow piece by piece, and blocks reach over the seams."""
    build = TraceBuilder()
    build.segment(0x1000, 0x1000)
    build.segment(0x2000, 0x1000)
    build.segment(0x3000, 0x1000)
    build.alloc(0x1800, 0x1000, category=Category.ACTIVATION)
    segments = written(build.trace(), tmp_path / "memory.pickle")["segments"]
    assert [(segment["address"], segment["total_size"]) for segment in segments] == [(0x1000, 0x2000), (0x3000, 0x1000)]
    assert [block["state"] for block in segments[0]["blocks"]] == ["inactive", "active_allocated", "inactive"]


def test_a_segment_that_was_given_back_is_not_listed(tmp_path: Path) -> None:
    """Its events are."""
    build = TraceBuilder()
    build.segment(0x1000, 0x1000)
    build.segment(0x1000, 0x1000, freed=True)
    content = written(build.trace(), tmp_path / "memory.pickle")
    assert content["segments"] == []
    assert [event["action"] for event in content["device_traces"][0]] == ["segment_alloc", "segment_free"]
