"""Faults of the environment: a full disk, no home, little memory, a clock that jumps, two calls at once."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from presim.cli import main
from support.command import COMMAND, environment, presim
from support.reliability import writing_verbs
from support.reliability.campaign import run_quietly
from support.reliability.kinds import KINDS

SIMULATE = ("simulate", "job", "--json", "r.json", "-q")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a saved job, cases and budgets."""
    with contextlib.redirect_stdout(io.StringIO()):
        for name in ("cases", "budgets"):
            next(kind for kind in KINDS if kind.name == name).make(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "verb", ["simulate job --html r.html -q", "simulate job --json r.json -q", "report r0.json --html r.html"]
)
def test_a_full_disk_is_told_and_nothing_is_left(folder: Path, verb: str) -> None:
    main.run(["simulate", str(folder / "job"), "--json", str(folder / "r0.json"), "-q"])
    before = set(folder.rglob("*"))
    ended = presim(*verb.split(), cwd=folder, limit_kib=1)
    assert ended.returncode == 2
    assert "cannot write" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert set(folder.rglob("*")) == before


def test_without_a_home_and_a_cache_verbs_work(folder: Path) -> None:
    nowhere = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"), "/nonexistent/place")
    ended = presim(*SIMULATE, cwd=folder, is_started=True, **nowhere)
    assert (ended.returncode, ended.stderr) == (0, "")


def _can_mount() -> bool:
    words = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/dev/shm"]
    return bool(shutil.which("unshare")) and not subprocess.run(words, capture_output=True, check=False).returncode


can_mount = pytest.mark.skipif(not _can_mount(), reason="no namespaces of mounts here")


def _without_writing_to(place: str, words: Sequence[str], folder: Path, **variables: str) -> tuple[int, str]:
    """Exit code and standard error of a call with an empty, read-only file system at a place."""
    mount = 'mount -t tmpfs -o ro none "$0" && exec "$@"'
    command = ["unshare", "-rm", "sh", "-c", mount, place, *COMMAND, *words]
    ended = subprocess.run(
        command, cwd=folder, env=environment(variables), capture_output=True, text=True, timeout=300, check=False
    )
    return ended.returncode, ended.stderr


@can_mount
def test_a_read_only_home_changes_nothing(folder: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    variables = {"HOME": str(home), "XDG_CACHE_HOME": "", "XDG_CONFIG_HOME": ""}
    assert _without_writing_to(str(home), SIMULATE, folder, **variables) == (0, "")
    written = (folder / "r.json").read_bytes()
    assert presim(*SIMULATE, cwd=folder).returncode == 0
    assert (folder / "r.json").read_bytes() == written


@can_mount
def test_without_shared_memory_a_job_is_simulated(folder: Path) -> None:
    assert _without_writing_to("/dev/shm", SIMULATE, folder) == (0, "")


@can_mount
@pytest.mark.torch_cuda
def test_a_script_runs_without_shared_memory(tmp_path: Path) -> None:
    code, errors = _run_without_writing_to("/dev/shm", tmp_path, {})
    assert code == 0, errors
    assert json.loads((tmp_path / "r.json").read_text())["exit"] == "ok"  # after the steps that it needs


@can_mount
def test_a_read_only_home_is_named_with_the_variable_that_moves_the_cache(tmp_path: Path) -> None:
    """Where the hook is not compiled yet."""
    (tmp_path / "home").mkdir()
    variables = {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": "", "XDG_CONFIG_HOME": ""}
    code, errors = _run_without_writing_to(str(tmp_path / "home"), tmp_path, variables)
    assert code == 2
    assert "(Read-only file system): choose another cache folder with `export XDG_CACHE_HOME=DIR`" in errors
    assert not (tmp_path / "r.json").exists()


def _run_without_writing_to(place: str, folder: Path, variables: dict[str, str]) -> tuple[int, str]:
    (folder / "train.py").write_text(writing_verbs.SCRIPT)
    words = ("run", "--gpu", "h100-sxm", "--json", "r.json", "-q", "train.py")
    return _without_writing_to(place, words, folder, **variables)


@pytest.mark.long
def test_a_hundred_repetitions_give_the_same_bytes(folder: Path) -> None:
    words = ["simulate", str(folder / "job"), "--json", str(folder / "r.json"), "--html", str(folder / "r.html"), "-q"]
    found = set()
    for _ in range(100):
        assert main.run(list(words)) == 0
        found.add((folder / "r.json").read_bytes() + (folder / "r.html").read_bytes())
    assert len(found) == 1


def test_a_gigabyte_of_memory_is_enough_to_simulate(folder: Path) -> None:
    words = ["bash", "-c", 'ulimit -v 1048576; exec "$@"', "bash", *COMMAND, *SIMULATE]
    variables = environment({"OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"})
    ended = subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_bytes_do_not_depend_on_hash_seed_threads_or_language(folder: Path) -> None:
    settings = (
        {"PYTHONHASHSEED": "1", "LC_ALL": "C"},
        {"PYTHONHASHSEED": "2", "LC_ALL": "C.UTF-8", "NUMBA_NUM_THREADS": "1", "TZ": "Asia/Tokyo"},
    )
    found = set()
    for variables in settings:
        assert presim(*SIMULATE, cwd=folder, **variables).returncode == 0
        found.add((folder / "r.json").read_bytes())
    assert len(found) == 1


def test_a_clock_that_jumps_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Backwards by a day at every second look; monotonic clocks never do."""
    jumps = itertools.cycle([0.0, -86_400.0])
    real = time.time
    words = ["validate", "cases.csv", "--out", "p.csv"]
    child = os.fork()
    if not child:
        monkeypatch.setattr(time, "time", lambda: real() + next(jumps))
        code, _ = run_quietly(lambda: main.run(list(words)), folder)
        os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    jumped = (folder / "p.csv").read_bytes()
    (folder / "p.csv").unlink()
    assert presim(*words, cwd=folder).returncode == 0
    assert (folder / "p.csv").read_bytes() == jumped


def test_two_calls_at_once_leave_one_whole_result(folder: Path) -> None:
    running = [subprocess.Popen([*COMMAND, *SIMULATE], cwd=folder, env=environment({})) for _ in range(2)]
    assert [process.wait(timeout=300) for process in running] == [0, 0]
    json.loads((folder / "r.json").read_text())
    assert not list(folder.glob(".presim-*"))
