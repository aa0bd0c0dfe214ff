"""Recordings of Nsight Systems and rocprofv3 are replayed as the same events from PyTorch's profiler are."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from presim.errors import InputError
from presim.evaluation.evaluator import evaluate
from presim.sources import source_conformance
from presim.sources.readers import open_files
from presim.sources.source import SourceRequest
from presim.trace.schema import Kind
from support import databases
from support.profiles import CLUSTER, as_pytorch, exported, simulated

WRITERS = [databases.nsys, databases.rocpd]


def bodies(folder: Path) -> list[dict[str, Any]]:
    """The profiles of both ranks as PyTorch writes them, without what other tools do not record."""
    paths = [as_pytorch(path, waits=False, shapes=False) for path in exported(folder, simulated())]
    return [json.loads(path.read_text()) for path in paths]


@pytest.mark.parametrize("write", WRITERS)
def test_a_recording_replays_the_step_within_two_percent(tmp_path: Path, write: Callable[..., Path]) -> None:
    """Work, order and host time come back; waits between streams are inferred from times."""
    (tmp_path / "kineto").mkdir()
    both = bodies(tmp_path / "kineto")
    files = [write(tmp_path / f"rank-{rank}.db", body) for rank, body in enumerate(both)]
    source = open_files(files, SourceRequest(gpu="h100-sxm"))
    job = source_conformance.check_source(source)
    original = simulated().result
    assert original.step_time_s is not None
    assert evaluate(job, CLUSTER).step_time_s == pytest.approx(original.step_time_s, rel=0.02)
    trace = job.traces[0]
    assert len(trace.steps()) == 3
    for kind, cat in ((Kind.WORK, ("kernel", "gpu_memcpy")), (Kind.STEP, ())):
        events = [event for event in both[0]["traceEvents"] if event.get("cat") in cat and event.get("ph") == "X"]
        assert int(trace.mask(kind).sum()) == (len(events) if cat else 3)


def test_the_gpu_is_read_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "kineto").mkdir()
    body = bodies(tmp_path / "kineto")[0]
    amd = open_files(
        [databases.rocpd(tmp_path / "a.db", body, "AMD Instinct MI300X")], SourceRequest(missing="same")
    ).job()
    assert amd.traces[0].manifest.gpu == "mi300x"


def other_gpu(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = 1 WHERE rowid % 2")


def backwards(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 1")


def no_work(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        for table in ("KERNEL", "MEMCPY", "MEMSET"):
            connection.execute(f"DROP TABLE CUPTI_ACTIVITY_KIND_{table}")


def no_names(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE StringIds")


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (other_gpu, "has work of 2 GPUs; record each rank into a file of its own"),
        (backwards, "which is no time; record the profile again"),
        (no_work, "has no device work; record the run with both"),
        (no_names, "has no table StringIds; export it again"),
        (cut_short, "is no readable SQLite database"),
    ],
)
def test_a_file_that_cannot_be_used_ends_in_a_sentence(
    tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    (tmp_path / "kineto").mkdir()
    path = databases.nsys(tmp_path / "a.sqlite", bodies(tmp_path / "kineto")[0])
    damage(path)
    with pytest.raises(InputError, match=message):
        open_files([path], SourceRequest(gpu="h100-sxm", missing="same")).job()
