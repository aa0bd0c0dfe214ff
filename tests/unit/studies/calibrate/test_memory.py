"""Memory of a profile beside that of the captured job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from presim.engine.simulation_options import Options
from presim.errors import InputError
from presim.evaluation.evaluate_traces import evaluate
from presim.evaluation.options import ClusterOptions
from presim.sources.kineto.profiled_memory import Peaks, read_peaks
from presim.studies.calibrate import calibration_text
from presim.studies.calibrate.correct_cluster import calibrate_job
from presim.trace.builder import TraceBuilder
from presim.trace.job import Job
from presim.trace.schema import Category, Manifest, Phase, Trace
from presim.trace.signatures import Gemm
from support.profiles import CLUSTER, as_pytorch, exported

GIB = 1 << 30


def program(rank: int) -> Trace:
    """Three steps that hold 2 GiB and need 1 GiB more for a while, in segments of 4 GiB."""
    build = TraceBuilder(
        Manifest(world_size=2, rank=rank, gpu="h100-sxm", gpus_per_node=2, script="t.py", node="hgx-h100")
    )
    build.segment(1 << 40, 4 * GIB)
    build.alloc(1 << 40, 2 * GIB, category=Category.PARAMETER)
    for _ in range(3):
        build.alloc((1 << 40) + 2 * GIB, GIB, category=Category.ACTIVATION)
        for size in (1024, 2048, 4096, 8192):
            build.work(Gemm(size, 4096, 4096, 1, "bfloat16"), host_ns=9_000, operator="aten::mm", phase=Phase.FORWARD)
        build.free((1 << 40) + 2 * GIB, GIB)
        build.stream_sync(stream=0, host_ns=2_000)
        build.step(host_ns=30_000)
    return build.trace()


def event(allocated: Any, reserved: int, device: int = 1) -> dict[str, Any]:
    """A change of memory, as PyTorch's profiler writes it."""
    sizes = {"Total Allocated": allocated, "Total Reserved": reserved, "Bytes": 512, "Device Id": 0}
    place = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": 1.0}
    return {**place, "args": {**sizes, "Device Type": device, "Addr": 512}}


@pytest.fixture
def profiles(tmp_path: Path) -> list[Path]:
    evaluation = evaluate(Job.of([program(0), program(1)]), CLUSTER, Options(host_factor=1.0))
    return [as_pytorch(path) for path in exported(tmp_path, evaluation)]


def add(path: Path, *events: dict[str, Any]) -> None:
    body = json.loads(path.read_text())
    body["traceEvents"] += events
    path.write_text(json.dumps(body))


def test_peaks_of_the_fullest_rank_are_beside_those_of_the_captured_step(profiles: list[Path], tmp_path: Path) -> None:
    Job((program(0), program(1))).save(tmp_path / "job")
    add(profiles[0], event(2 * GIB, 4 * GIB), event(3 * GIB, 4 * GIB), event(9 * GIB, 0, device=0))
    add(profiles[1], event(4 * GIB, 5 * GIB))
    found = calibrate_job(list(map(str, profiles)), ClusterOptions(), trace=tmp_path / "job")
    assert found.memory is not None
    assert (found.memory.measured_allocated, found.memory.measured_reserved) == (4 * GIB, 5 * GIB)
    assert (found.memory.predicted_allocated, found.memory.predicted_reserved) == (3 * GIB, 4 * GIB)
    text = calibration_text.text(calibration_text.report(found, "c.toml"))
    assert "peak allocated memory: measured 4.00 GiB, predicted 3.00 GiB (-25.0%)" in text
    assert "peak reserved memory: measured 5.00 GiB, predicted 4.00 GiB (-20.0%)" in text
    assert (
        json.loads(calibration_text.encode(calibration_text.report(found, "c.toml")))["memory"]["measured_allocated"]
        == 4 * GIB
    )


def test_what_is_missing_for_a_comparison_is_named(profiles: list[Path], tmp_path: Path) -> None:
    found = calibrate_job(list(map(str, profiles)), ClusterOptions())
    assert any(note.endswith("no memory events (profile_memory=True records them).") for note in found.notes)
    add(profiles[0], event(GIB, GIB))
    found = calibrate_job(list(map(str, profiles)), ClusterOptions())
    assert any("Memory is not compared: only the captured job" in note for note in found.notes)
    assert found.memory is None
    assert json.loads(calibration_text.encode(calibration_text.report(found, "c.toml")))["memory"] is None


@pytest.mark.parametrize("size", [-1, "many", None, 1 << 60, True])
def test_a_size_that_cannot_be_is_refused(profiles: list[Path], size: object) -> None:
    assert read_peaks(profiles) is None
    add(profiles[0], event(size, GIB))
    with pytest.raises(InputError, match="a memory event has Total Allocated"):
        read_peaks(profiles)
    assert read_peaks(profiles[1:]) is None
    add(profiles[1], event(5, 6))
    assert read_peaks(profiles[1:]) == Peaks(5, 6)
