"""Folders of processes that were killed are removed by a later call; no other folder is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from presim.system.files import scratch


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scratch.sweep.cache_clear()
    return tmp_path


def abandoned(parent: Path, name: str = "presim-old", **changes: Any) -> Path:
    """A folder of a process that has ended, or of another owner."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    owner = scratch._identity(process.pid)
    process.wait()
    folder = parent / name
    (folder / "0").mkdir(parents=True)
    (folder / scratch.OWNER).write_text(json.dumps({**owner, **changes}))
    return folder


def test_a_folder_is_gone_behind_its_block(parent: Path) -> None:
    with scratch.temporary_folder("kind") as folder:
        assert folder.name.startswith("presim-kind-")
        assert json.loads((folder / scratch.OWNER).read_text())["pid"] == os.getpid()
    assert list(parent.iterdir()) == []


def test_a_killed_process_leaves_its_folder_to_the_next_call(parent: Path) -> None:
    """By SIGKILL, in the middle of its work."""
    code = (
        "import os, signal\nfrom presim.system.files.scratch import temporary_folder\n"
        "with temporary_folder() as folder:\n (folder / 'log').write_text('x')\n os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(parent)}, check=False)
    assert [path.name[:7] for path in parent.iterdir()] == ["presim-"]
    with scratch.temporary_folder() as folder:
        assert list(parent.iterdir()) == [folder]


def test_a_later_process_with_the_id_of_the_owner_is_not_the_owner(parent: Path) -> None:
    folder = abandoned(parent, pid=os.getpid())
    scratch.sweep(parent)
    assert not folder.exists()


FOREIGN = {
    "an owner that lives": scratch._identity(os.getpid()),
    "another machine": {"boot": "another"},
    "another container": {"pid_namespace": "pid:[1]"},
    "no process id": {"pid": "12"},
}


@pytest.mark.parametrize("changes", FOREIGN.values(), ids=FOREIGN)
def test_a_folder_of_a_live_or_unknown_owner_stays(changes: dict[str, Any], parent: Path) -> None:
    folder = abandoned(parent, **changes)
    scratch.sweep(parent)
    assert folder.exists()


def test_folders_without_an_owner_or_with_another_name_stay(parent: Path) -> None:
    (parent / "presim-notes").mkdir()
    (parent / "presim-file").write_text("")
    damaged = abandoned(parent, "presim-damaged")
    (damaged / scratch.OWNER).write_text("{")
    other = abandoned(parent, "results")
    (parent / "presim-link").symlink_to(other)
    scratch.sweep(parent)
    assert len(list(parent.iterdir())) == 5
