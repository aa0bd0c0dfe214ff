"""What the system refuses anywhere in a verb ends in one sentence."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest

from presim.cli import main, surroundings
from presim.errors import InputError


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENAMETOOLONG, "File name too long", "n" * 300), ": File name too long; choose a shorter name"),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files; raise the limit, e.g. `ulimit -n 1024`"),
        (PermissionError(errno.EACCES, "Permission denied", "x"), "x: Permission denied; check its permissions"),
        (MemoryError(), "there is too little memory for this: lower the counts in it, or raise `ulimit -v`"),
        (OSError(errno.EBADF, "Bad file descriptor"), ""),  # presim's own fault
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "x"), ""),
    ],
)  # fmt: skip
def test_an_error_of_the_system_is_told_with_what_to_do(error: OSError | MemoryError, words: str) -> None:
    assert surroundings.sentence(error).endswith(words)
    assert bool(surroundings.sentence(error)) == bool(words)


def test_a_deleted_working_directory_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    said = surroundings.sentence(FileNotFoundError(errno.ENOENT, "No such file or directory"))
    monkeypatch.chdir(tmp_path)
    assert said == "the working directory was deleted; change to another one"


def test_too_few_descriptors_are_told_before_they_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A soft limit is raised where the hard one allows it."""
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: raised.append(limits))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (24, 4096))
    surroundings.check([])
    assert raised == [(64, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: (24, 24))
    with pytest.raises(InputError, match=r"^24 files may be open, and presim needs 64: raise the limit with `ulimit"):
        surroundings.check([])


def test_a_null_byte_in_a_command_line_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["report", "a\0b"]) == 2
    assert capsys.readouterr().err == "presim: 'a\\x00b' holds a null byte; leave it out\n"


def test_a_name_of_thousands_of_characters_is_shortened_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["simulate", "y" * 70_000, "--gpu", "h100-sxm"]) == 2
    said = capsys.readouterr().err
    assert "(70,000 characters)" in said
    assert len(said) < 700
    assert main.run(["simulate", "job", "--nodes", "z" * 70_000]) == 2
    assert len(capsys.readouterr().err) < 400


@pytest.mark.parametrize(
    "words",
    ["simulate {job} --json {loop} -q", "simulate {job} --kineto {loop} -q", "network {loop}"],
)
def test_a_loop_of_links_is_told(words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.symlink("loop", tmp_path / "loop")
    assert main.run(words.format(job=tmp_path, loop=tmp_path / "loop").split()) == 2
    assert "Too many levels of symbolic links; " in capsys.readouterr().err
