"""Jobs run in processes, at most so many at a time, and end when they are cancelled."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from presim.app.jobs import Jobs, ProjectJob
from presim.app.project import Project

WRITES = "import pathlib; pathlib.Path(%r).write_text('{}'); print('written')"
WAITS = "import pathlib, time; pathlib.Path(%r).touch(); time.sleep(600)"


def jobs(folder: Path, most_running: int = 1) -> Jobs:
    """Jobs whose command is a line of Python."""
    return Jobs(Project(folder), lambda parts: [sys.executable, "-c", parts[0]], most_running)


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        pass


def state_of(all_jobs: Jobs, name: str) -> str:
    job = all_jobs.get(name)
    assert isinstance(job, ProjectJob)
    return job.state


def test_a_job_that_writes_its_result_is_done_and_has_a_log(tmp_path: Path) -> None:
    all_jobs = jobs(tmp_path)
    all_jobs.start("compose", [WRITES % "a.json"], "a")
    until(lambda: state_of(all_jobs, "a") != "running")
    assert state_of(all_jobs, "a") == "done"
    assert all_jobs.project.log("a") == "written\n"


def test_a_job_without_result_failed(tmp_path: Path) -> None:
    all_jobs = jobs(tmp_path)
    all_jobs.start("compose", ["raise SystemExit(2)"], "a")
    until(lambda: state_of(all_jobs, "a") != "running")
    job = all_jobs.get("a")
    assert job is not None
    assert (job.state, job.exit_code) == ("failed", 2)


def test_a_queued_job_starts_when_a_running_one_is_cancelled(tmp_path: Path) -> None:
    all_jobs = jobs(tmp_path)
    all_jobs.start("compose", [WAITS % "started"], "a")
    all_jobs.start("compose", [WRITES % "b.json"], "b")
    until(lambda: (tmp_path / "started").exists())
    assert [job.state for job in all_jobs.all()] == ["running", "queued"]
    all_jobs.cancel("a")
    until(lambda: state_of(all_jobs, "b") == "done")
    assert state_of(all_jobs, "a") == "cancelled"


def test_closing_ends_every_process(tmp_path: Path) -> None:
    all_jobs = jobs(tmp_path, 2)
    for name in ("a", "b", "c"):
        all_jobs.start("compose", [WAITS % f"{name}-started"], name)
    until(lambda: (tmp_path / "a-started").exists() and (tmp_path / "b-started").exists())
    all_jobs.close()
    assert [job.state for job in all_jobs.all()] == ["cancelled"] * 3
    assert not (tmp_path / "c-started").exists()


@pytest.mark.parametrize("line", ["presim compose 'a", "presim nothing x", "echo", "presim compose --no-such 3"])
def test_a_script_of_someone_else_is_no_question(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.sh").write_text(f"#!/bin/sh\n{line}\n")
    origin = Project(tmp_path).origin("a")
    assert (origin.question, origin.values, origin.command) == ("", {}, line)


def test_names_go_on_where_the_folder_has_files(tmp_path: Path) -> None:
    project = Project(tmp_path)
    assert project.free_name("compose") == "compose-1"
    (tmp_path / "compose-1.log").touch()
    (tmp_path / "compose-3.json").touch()
    assert project.free_name("compose") == "compose-2"
