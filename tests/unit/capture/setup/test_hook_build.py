"""Location, name and build of the operator hook."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from presim.capture.setup import hook_build
from presim.capture.setup.environment import Torch
from presim.errors import CaptureError
from support.command import processes_of

TORCH = Torch(Path("/site/torch"), "2.14.0+cu130", "13.0")


@pytest.fixture
def shim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shim with one source and one header of each kind, and its own cache."""
    for name in ("hook/api.cpp", "hook/api.h", "hook/cuda_headers/cuda.h", "core/recorder.h", "lib/.built"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(hook_build, "SHIM_DIRECTORY", tmp_path)
    monkeypatch.setattr(hook_build, "SOURCES", tmp_path / "hook")
    monkeypatch.setattr(hook_build, "cache_directory", lambda: tmp_path / "cache")
    return tmp_path


def name(torch: Torch = TORCH) -> str:
    return hook_build._file_name(torch)


def test_the_name_is_the_same_for_the_same_sources_and_version(shim: Path) -> None:
    assert name() == name()
    assert name().startswith("presim_hook-2.14.0+cu130-")


@pytest.mark.parametrize("source", ["hook/api.cpp", "hook/api.h", "hook/cuda_headers/cuda.h", "core/recorder.h"])
def test_a_changed_source_or_version_is_another_hook(shim: Path, source: str) -> None:
    """A hook built from other sources is never loaded."""
    before = name()
    assert name(Torch(TORCH.directory, "2.15.0+cu130", "13.0")) != before
    (shim / source).write_text("changed")
    assert name() != before


def test_a_prebuilt_hook_is_preferred_to_the_cache(shim: Path) -> None:
    assert hook_build.hook_path(TORCH) is None
    places = [shim / "cache" / name(), shim / "lib" / name()]
    for place in places:
        place.parent.mkdir(exist_ok=True)
        place.touch()
        assert hook_build.hook_path(TORCH) == place
        assert hook_build.ensure_hook(TORCH) == place


def test_a_missing_compiler_is_reported_with_the_fix(shim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook_build, "find_compiler", lambda: None)
    with pytest.raises(CaptureError, match=r"there is no C\+\+ compiler: `apt-get install g\+\+`$"):
        hook_build.ensure_hook(TORCH)


def test_an_unwritable_cache_is_reported_with_the_fix(shim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook_build, "find_compiler", lambda: "g++")
    (shim / "cache").write_text("a file")
    with pytest.raises(CaptureError, match=r"stored in .*/cache \(File exists\): choose another cache folder"):
        hook_build.ensure_hook(TORCH)


def test_a_compiler_that_fails_leaves_nothing_behind(shim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has its first error."""
    compiler = shim / "g++"
    compiler.write_text("#!/bin/sh\necho 'api.cpp:1: error: no such thing' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setattr(hook_build, "find_compiler", lambda: str(compiler))
    with pytest.raises(CaptureError, match=r"against PyTorch 2\.14\.0\+cu130: api\.cpp:1: error: no such thing$"):
        hook_build.ensure_hook(TORCH)
    assert list((shim / "cache").iterdir()) == []


def test_a_compiled_hook_is_kept_and_not_compiled_again(shim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake compiler writes the file after -o, and fails when called again."""
    compiler = shim / "g++"
    compiler.write_text(
        f'#!/bin/sh\nmkdir "{shim}/called" || exit 1\nwhile [ "$1" != -o ]; do shift; done\necho built > "$2"\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setattr(hook_build, "find_compiler", lambda: str(compiler))
    monkeypatch.setattr(hook_build, "require_torch", lambda: TORCH)
    monkeypatch.setattr(sys, "argv", ["hook_build", "--cache"])
    hook_build.main()
    assert hook_build.ensure_hook(TORCH) == hook_build.ensure_hook(TORCH) == shim / "cache" / name()
    assert [path.name for path in (shim / "cache").iterdir()] == [name()]


def test_the_compiler_s_errors_are_returned() -> None:
    assert hook_build._compile(["sh", "-c", "echo 'error: no such header' >&2; exit 1"]) == "error: no such header\n"
    assert hook_build._compile(["true"]) is None


def test_ctrl_c_while_compiling_ends_the_compiler_s_children(tmp_path: Path) -> None:
    """Even a child that holds the pipe open."""
    child = f"sh -c 'kill -INT {os.getpid()}; exec tail -f /dev/null' {tmp_path}"
    with pytest.raises(KeyboardInterrupt):
        hook_build._compile(["sh", "-c", f"{child} & wait # {tmp_path}"])
    assert processes_of(str(tmp_path)) == []
