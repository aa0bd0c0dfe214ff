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


def test_one_recording_of_a_node_has_a_rank_for_each_gpu(tmp_path: Path) -> None:
    """`nsys profile torchrun …` writes one file; it is the job of one file for each rank."""
    (tmp_path / "kineto").mkdir()
    both = bodies(tmp_path / "kineto")
    files = [databases.nsys(tmp_path / f"rank-{rank}.db", body) for rank, body in enumerate(both)]
    of_files = open_files(files, SourceRequest(gpu="h100-sxm")).job()
    whole = databases.nsys_of_node(tmp_path / "node.db", {3: both[0], 5: both[1]})
    of_node = open_files([whole], SourceRequest()).job()
    assert evaluate(of_node, CLUSTER).step_time_s == evaluate(of_files, CLUSTER).step_time_s
    assert [trace.manifest.rank for trace in of_node.traces] == [0, 1]
    assert "node.db has work of 2 GPUs: each counts as a rank, in their order." in of_node.notes


def test_names_with_a_version_graphs_and_migrations(tmp_path: Path) -> None:
    (tmp_path / "kineto").mkdir()
    path = databases.nsys(tmp_path / "a.sqlite", bodies(tmp_path / "kineto")[0])
    request = SourceRequest(gpu="h100-sxm", missing="same")
    plain = open_files([path], request).job()
    with sqlite3.connect(path) as connection:
        kernels, copies = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY"
        columns = "start, end, deviceId, streamId, correlationId, globalPid"
        of_graph = f"SELECT {columns}, 7 AS graphId FROM {kernels} WHERE rowid % 2"
        connection.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE AS {of_graph}")
        connection.execute(f"DELETE FROM {kernels} WHERE rowid % 2")
        connection.execute(f"INSERT INTO {copies} SELECT {columns}, 2097152, 11, 1, 2 FROM {copies} LIMIT 1")
        connection.execute(f"UPDATE {copies} SET correlationId = 0 WHERE copyKind = 11")
        connection.execute(f"ALTER TABLE {kernels} RENAME TO {kernels}_V3")
    changed = open_files([path], request).job()
    counts = [int(job.traces[0].mask(Kind.WORK).sum()) for job in (plain, changed)]
    measured = [job.traces[0].manifest.measured for job in (plain, changed)]
    assert counts[0] == counts[1] > 0
    assert measured[0] is not None
    assert measured[1] is not None
    assert measured[0].step_ns == measured[1].step_ns
    migrations = (
        "1 migrations of managed memory (2.0 MiB) are not replayed: what they delayed is in the times of kernels."
    )
    assert migrations in changed.notes


def with_tables_of_times(path: Path) -> None:
    """As rocprofv3 writes it since its rows refer to `rocpd_timestamp` and `rocpd_track`."""
    places = {
        "kernel_dispatch": ("NULL", "agent_id", "stream_id"), "memory_copy": ("NULL", "4", "stream_id"),
        "region": ("tid", "NULL", "NULL"),
    }  # fmt: skip
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE rocpd_timestamp_0000fa3b (id INTEGER PRIMARY KEY, value)")
        connection.execute("CREATE TABLE rocpd_track_0000fa3b (id INTEGER PRIMARY KEY, tid, agent_id, stream_id)")
        for name, (thread, agent, stream) in places.items():
            table = f"rocpd_{name}_0000fa3b"
            connection.executescript(
                f"ALTER TABLE {table} ADD COLUMN track_id; ALTER TABLE {table} ADD COLUMN start_id;"
                f"ALTER TABLE {table} ADD COLUMN end_id;"
            )
            rows = connection.execute(
                f'SELECT rowid, start, "end", {thread}, {agent}, {stream} FROM {table}'
            ).fetchall()
            for number, start, end, *place in rows:
                inserted = "INSERT INTO rocpd_timestamp_0000fa3b (value) VALUES (?)"
                times = [connection.execute(inserted, (value,)).lastrowid for value in (start, end)]
                track = connection.execute(
                    "INSERT INTO rocpd_track_0000fa3b (tid, agent_id, stream_id) VALUES (?, ?, ?)", place
                ).lastrowid
                changed = f"UPDATE {table} SET track_id = ?, start_id = ?, end_id = ? WHERE rowid = ?"
                connection.execute(changed, (track, *times, number))
            for column in ("start", '"end"', *(word for word in (thread, agent, stream) if word.islower())):
                connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")


def test_times_and_places_may_have_tables_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "kineto").mkdir()
    path = databases.rocpd(tmp_path / "a.db", bodies(tmp_path / "kineto")[0])
    request = SourceRequest(missing="same")
    plain = open_files([path], request).job().traces[0]
    with_tables_of_times(path)
    changed = open_files([path], request).job().traces[0]
    assert changed.manifest.measured == plain.manifest.measured
    assert changed.signatures == plain.signatures
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM rocpd_timestamp_0000fa3b WHERE id = 1")
    with pytest.raises(InputError, match="refers to the time or track 1, which it does not have"):
        open_files([path], request).job()


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
        (no_work, "has no work of a GPU; record the run with `nsys profile -t cuda,nvtx program`"),
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
