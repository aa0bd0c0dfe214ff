"""Files of a project folder with odd names and contents, and a folder that is gone, are named in a sentence."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from presim.app.api import TOKEN
from presim.app.jobs import Jobs
from presim.app.project import Project
from presim.app.server import application
from presim.app.state import AppState

VALUES = {"model": "llama3-8b", "gpu": "h100-sxm", "sequence": "2048"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


@pytest.fixture
def client(folder: Path) -> Iterator[TestClient]:
    state = AppState(folder)
    yield TestClient(application(state, "secret"), base_url="http://localhost:8123", headers={TOKEN: "secret"})
    state.close()


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("empty.json", b"", "is no JSON"),
        ("binary.json", b"\xff\xfe", "is no JSON"),
        ("list.json", b"[1]", "is not a result of presim"),
        ("newer.json", b'{"schema": "presim-result/999"}', "which this presim does not know"),
        ("damaged.json", b'{"schema": "presim-serving/1"}', "is a damaged result"),
        ("bare.json", b'{"schema": "presim-prefill/1", "plan_of_a_rank": "", "batches": []}', "is a damaged result"),
        ("with space.json", b"{}", "rename with space.json"),
        ("größe.json", b"{}", "rename größe.json"),
    ],
)
def test_a_file_that_is_no_result_is_listed_with_its_problem(
    client: TestClient, folder: Path, name: str, content: bytes, problem: str
) -> None:
    (folder / name).write_bytes(content)
    (row,) = client.get("/api/project").json()["results"]
    assert row["name"] == name.removesuffix(".json")
    assert problem in row["problem"]


@pytest.mark.parametrize("script", [b"", b"\xff\xfe", b"#!/bin/sh\n", b"rm -rf /\n", b"presim compose 'a\n"])
def test_a_damaged_command_hides_no_other_result(client: TestClient, folder: Path, script: bytes) -> None:
    (folder / "first.json").write_bytes(b"[]")
    (folder / "first.sh").write_bytes(script)
    (folder / "second.json").write_bytes(b"[]")
    rows = client.get("/api/project").json()["results"]
    assert sorted(row["name"] for row in rows) == ["first", "second"]
    assert all(row["problem"] for row in rows)


def test_a_folder_that_is_gone_is_named(client: TestClient, folder: Path) -> None:
    shutil.rmtree(folder)
    for address in ("start", "change"):
        answer = client.post(f"/api/questions/compose/{address}", json=VALUES)
        assert answer.status_code == 400
        assert str(folder) in answer.json()["error"]
        assert answer.json()["error"].endswith(
            "is the project folder still there, with space, and may presim write into it?"
        )
    assert client.get("/api/project").status_code == 200


@pytest.mark.parametrize("value", ["a\nb", "a\x00b", "\x1b[1m"])
def test_a_value_that_no_script_can_hold_is_refused(client: TestClient, value: str) -> None:
    answer = client.post("/api/questions/compose/start", json={**VALUES, "model": value})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("model has a character that cannot be printed: ")


def test_a_job_that_cannot_be_started_has_failed(folder: Path) -> None:
    jobs = Jobs(Project(folder), command=lambda parts: ["/no/such/program"])
    with pytest.raises(OSError, match="/no/such/program"):
        jobs.start("compose", [], "compose-1")
    assert [job.state for job in jobs.all()] == ["failed"]
    jobs.close()
