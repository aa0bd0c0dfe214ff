"""Detecting libraries that were built from other sources than the checkout's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from presim.capture.setup.shim import changed_sources, describe_outdated, shim_sources

ROOT = Path(__file__).parents[4]
SHIM = Path("src/presim/shim")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Two sources below the Makefile's folder, and the stamp of `make shim` for them."""
    for path in (SHIM / "core" / "pace.cpp", SHIM / "lib" / "libcuda.so.1", SHIM / "hook" / "hook.cpp"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text("int pace;\n")
    (tmp_path / "CMakeLists.txt").write_text("project(presim)\n")
    names = ("CMakeLists.txt", f"{SHIM}/core/pace.cpp")
    digests = subprocess.check_output(["sha256sum", *names], cwd=tmp_path, text=True)
    (tmp_path / SHIM / "lib" / ".built").write_text(digests)
    return tmp_path


def younger(path: Path, checkout: Path) -> None:
    """Set a modification time after the build, without sleeping."""
    built = (checkout / SHIM / "lib" / ".built").stat().st_mtime
    os.utime(path, (built + 10, built + 10))


def test_libraries_that_were_just_built_are_current(checkout: Path) -> None:
    assert changed_sources(checkout) == []


def test_a_newer_source_with_other_content_is_listed(checkout: Path) -> None:
    source = checkout / SHIM / "core" / "pace.cpp"
    source.write_text("long pace;\n")
    younger(source, checkout)
    assert changed_sources(checkout) == [f"{SHIM}/core/pace.cpp"]


def test_a_touched_source_is_unchanged(checkout: Path) -> None:
    younger(checkout / SHIM / "core" / "pace.cpp", checkout)
    assert changed_sources(checkout) == []


def test_new_and_deleted_sources_are_changes(checkout: Path) -> None:
    new = checkout / SHIM / "core" / "new.cpp"
    new.write_text("")
    younger(new, checkout)
    (checkout / SHIM / "core" / "pace.cpp").unlink()
    changed = changed_sources(checkout)
    assert changed == [f"{SHIM}/core/new.cpp", f"{SHIM}/core/pace.cpp"]
    assert (
        describe_outdated(changed)
        == f"the emulated CUDA libraries were built before {SHIM}/core/new.cpp and 1 more changed"
    )


def test_a_wheel_without_a_stamp_has_no_changes(tmp_path: Path) -> None:
    assert changed_sources(tmp_path) == []


def test_the_makefile_compiles_the_same_files() -> None:
    command = ["make", "--silent", "--eval", "sources: ; @echo $(SHIM_SOURCES)", "sources"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # of `make test`
    made = subprocess.check_output(command, cwd=ROOT, env=environment, text=True).split()
    found = [os.path.relpath(entry.path, ROOT) for entry in shim_sources(ROOT)]
    assert sorted(found) == sorted(path for path in made if "__pycache__" not in path)
