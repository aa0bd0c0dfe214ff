"""Collect the facts about this machine that decide whether a script can be captured here."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
import tempfile
from pathlib import Path

from presim.capture.setup.environment import Torch, find_compiler, find_torch, torch_problem
from presim.capture.setup.hook_build import cache_directory, hook_path
from presim.capture.setup.shim import SHIM_DIRECTORY, changed_sources, shim_paths

TORCH_NEEDS = ("filelock", "fsspec", "jinja2", "networkx", "sympy", "typing_extensions")  # imported by `import torch`


@dataclasses.dataclass(frozen=True)
class Machine:
    """The facts, found without importing torch."""

    python: tuple[int, ...]  # major, minor, patch
    interpreter: Path  # that runs presim
    system: str  # e.g. Linux x86_64
    torch: Torch | None
    torch_needs_missing: tuple[str, ...]  # of TORCH_NEEDS
    shim: Path  # folder of the emulated libraries
    shim_missing: tuple[str, ...]  # libraries that are not built
    shim_changed: tuple[str, ...]  # sources that have changed since the build
    hook: Path | None  # the operator hook for this PyTorch, if built
    compiler: str | None
    nvidia_packages: tuple[str, ...]
    triton: str | None  # version
    triton_wanted: str  # version required by this PyTorch, e.g. ~=3.8.0
    temporary: Path  # folder of the capture logs
    temporary_free_bytes: int
    cache: Path  # folder of the compiled operator hook
    cache_writable: bool


def inspect_machine() -> Machine:
    """Inspect this machine."""
    torch = find_torch()
    supported = torch if torch_problem(torch) is None else None
    temporary, cache = Path(tempfile.gettempdir()), cache_directory()
    return Machine(
        python=tuple(sys.version_info[:3]),
        interpreter=Path(sys.executable),
        system=f"{platform.system()} {platform.machine()}",
        torch=torch,
        torch_needs_missing=tuple(name for name in TORCH_NEEDS if importlib.util.find_spec(name) is None),
        shim=shim_paths()[0].parent,
        shim_missing=tuple(path.name for path in shim_paths() if not path.exists()),
        shim_changed=tuple(changed_sources(SHIM_DIRECTORY.parents[2])),
        hook=hook_path(supported) if supported else None,
        compiler=find_compiler(),
        nvidia_packages=nvidia_packages(),
        triton=_version("triton"),
        triton_wanted=_requirement("torch", "triton"),
        temporary=temporary,
        temporary_free_bytes=shutil.disk_usage(temporary).free,
        cache=cache,
        cache_writable=_can_write(cache),
    )


def nvidia_packages(paths: list[str] | None = None) -> tuple[str, ...]:
    """Installed nvidia-* packages, from the names of their metadata folders, without opening files."""
    names = set()
    for path in sys.path if paths is None else paths:
        with contextlib.suppress(OSError):
            names |= {name.split("-")[0] for name in os.listdir(path or ".") if name.endswith(".dist-info")}
    return tuple(sorted(name.replace("_", "-") for name in names if name.startswith("nvidia_")))


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _requirement(package: str, dependency: str) -> str:
    try:
        lines = importlib.metadata.requires(package) or []
    except importlib.metadata.PackageNotFoundError:
        return ""
    matches = (re.match(rf"{dependency}\s*([^;]*)", line) for line in lines)
    return next((match.group(1).strip() for match in matches if match), "")


def _can_write(folder: Path) -> bool:
    """Whether files can be created in a folder, or in its nearest existing parent."""
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    return nearest.is_dir() and os.access(nearest, os.W_OK)
