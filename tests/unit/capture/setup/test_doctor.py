"""The checks of `presim doctor` on invented machines."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from presim.capture.setup import doctor
from presim.capture.setup.doctor import CheckState, SetupCheck
from presim.capture.setup.environment import Torch
from presim.capture.setup.machine import Machine, inspect_machine, nvidia_packages

GOOD = Machine(
    python=(3, 11, 2),
    interpreter=Path("/env/bin/python"),
    system="Linux x86_64",
    torch=Torch(Path("/site/torch"), "2.14.0+cu130", "13.0"),
    torch_needs_missing=(),
    shim=Path("/site/presim/shim/lib"),
    shim_missing=(),
    shim_changed=(),
    hook=None,
    compiler="/usr/bin/g++",
    nvidia_packages=(),
    triton="3.8.0",
    triton_wanted="~=3.8.0",
    temporary=Path("/tmp"),
    temporary_free_bytes=5 << 30,
    cache=Path("/home/me/.cache/presim/hook"),
    cache_writable=True,
)


def checks(**changes: object) -> dict[str, SetupCheck]:
    machine = dataclasses.replace(GOOD, **changes)  # type: ignore[arg-type]
    return {check.name: check for check in doctor.examine(machine)}


def test_a_complete_machine_passes() -> None:
    assert all(check.state is CheckState.OK and not check.mend for check in checks().values())


@pytest.mark.parametrize(
    ("name", "changes", "says", "mend"),
    [
        ("system", {"python": (3, 9, 2)}, "presim needs 3.11 or newer", "python3.11 -m venv .venv"),
        ("system", {"system": "Darwin arm64"}, "only be captured on Linux x86_64", "presim simulate DIR"),
        ("PyTorch", {"torch": None}, "PyTorch is not installed", "pip install --no-deps torch===2.14.0"),
        ("PyTorch", {"torch": Torch(Path(), "2.14.0+cpu", "")}, "2.14.0+cpu is a CPU-only build", "torch===2.14.0"),
        ("PyTorch", {"torch": Torch(Path(), "2.14.0", "12.6")}, "built for CUDA 12.6", "torch===2.14.0"),
        ("PyTorch", {"torch": Torch(Path(), "2.9.1", "13.0")}, "supported versions 2.11 to 2.15", "torch===2.14.0"),
        ("PyTorch", {"torch_needs_missing": ("sympy", "jinja2")}, "without sympy, jinja2", "pip install sympy jinja2"),
        ("emulated CUDA libraries", {"shim_missing": ("libnccl.so.2",)}, "libnccl.so.2", "shim"),
        ("emulated CUDA libraries", {"shim_changed": ("core/pace.cpp", "x.h")}, "core/pace.cpp and 1 more", "shim"),
        ("operator hook", {"compiler": None}, "no C++ compiler", "apt-get install g++"),
        ("operator hook", {"cache_writable": False}, "cannot be written", "export XDG_CACHE_HOME=DIR"),
        ("disk", {"temporary_free_bytes": 1 << 20}, "1.0 MiB free in /tmp", "export TMPDIR=DIR"),
    ],
)
def test_a_problem_that_prevents_runs_is_missing_and_has_a_fix(
    name: str, changes: dict[str, object], says: str, mend: str
) -> None:
    """One broken part gives one missing check with the finding and the command that fixes it."""
    found = checks(**changes)
    assert found[name].state is CheckState.MISSING
    assert says in found[name].found
    assert found[name].mend.endswith(mend)
    assert [other.name for other in found.values() if other.state is CheckState.MISSING] == [name]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("Triton", {"triton": None}),
        ("disk", {"temporary_free_bytes": 500 << 20}),
    ],
)
def test_an_optional_part_is_a_note(name: str, changes: dict[str, object]) -> None:
    check = checks(**changes)[name]
    assert check.state is CheckState.NOTE
    assert check.mend


def test_the_fix_for_triton_has_the_version_that_pytorch_requires() -> None:
    assert checks(triton=None)["Triton"].mend.endswith("pip install --no-deps 'triton~=3.8.0'")


def test_a_built_hook_needs_no_compiler() -> None:
    assert checks(hook=Path("/cache/hook.so"), compiler=None)["operator hook"].state is CheckState.OK


def test_nvidia_packages_do_not_matter() -> None:
    assert checks(nvidia_packages=("nvidia-nccl-cu13",))["nvidia-* packages"].state is CheckState.OK


def test_nvidia_packages_are_found_by_their_metadata(tmp_path: Path) -> None:
    for name in ("nvidia_nccl_cu13-2.30.7.dist-info", "nvidia", "numpy-2.4.6.dist-info"):
        (tmp_path / name).mkdir()
    assert nvidia_packages([str(tmp_path), str(tmp_path / "absent")]) == ("nvidia-nccl-cu13",)


def test_inspecting_this_machine_does_not_import_torch() -> None:
    """The doctor works even if torch cannot be imported; the facts are this interpreter's."""
    import sys

    before = "torch" in sys.modules
    assert inspect_machine().python == tuple(sys.version_info[:3])
    assert ("torch" in sys.modules) == before


@pytest.mark.torch_cuda
def test_the_deep_check_creates_a_tensor_on_the_emulated_gpu() -> None:
    check = doctor.examine_deeply()
    assert (check.state, check.found) == (CheckState.OK, "created on NVIDIA H100 80GB HBM3 (4,) 512")


def test_the_interpreter_is_named() -> None:
    """So that one sees which environment `presim` belongs to."""
    assert doctor.examine(GOOD)[0].found == "Python 3.11.2 (/env/bin/python) on Linux x86_64"
