"""Locate the emulated CUDA libraries and check whether they are built from the current sources."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from presim.errors import CaptureError

SHIM_DIRECTORY = Path(__file__).parents[2] / "shim"
LIBRARIES = (
    "libcuda.so.1",
    "libnvidia-ml.so.1",
    "libcudart.so.13",
    "libcublas.so.13",
    "libcublasLt.so.13",
    "libcudnn.so.9",
    "libnccl.so.2",
    "libcufft.so.12",
    "libcurand.so.10",
    "libcusolver.so.12",
    "libcusparse.so.12",
    "libcusparseLt.so.0",
    "libcufile.so.0",
    "libcupti.so.13",
    "libnvrtc.so.13",
    "libnvshmem_host.so.3",
)
_NOT_COMPILED = ("lib", "hook", "__pycache__")  # the hook is compiled for each PyTorch, see hook_build


def shim_libraries() -> list[Path]:
    """The built libraries in the order in which they are preloaded; empty if any is missing."""
    paths = shim_paths()
    return paths if all(path.exists() for path in paths) else []


def shim_paths() -> list[Path]:
    """The paths of the built libraries."""
    directory = SHIM_DIRECTORY / "lib"
    return [directory / name for name in ("libpresim_shim.so", *LIBRARIES)]


def build_shim() -> str:
    """The command that builds the shim, in a checkout or an installation."""
    root = SHIM_DIRECTORY.parents[2]
    return f"make -C {root} shim" if (root / "Makefile").exists() else "pip install --force-reinstall --no-deps presim"


def require_shim() -> list[Path]:
    """The paths of the built libraries.

    Raises:
        CaptureError: they are not built, or their sources have changed since.
    """
    libraries = shim_libraries()
    if not libraries:
        raise CaptureError(
            f"the emulated CUDA libraries are not built in {SHIM_DIRECTORY / 'lib'}: "
            f"`{build_shim()}`; `presim doctor` checks the rest"
        )
    if changed := changed_sources(SHIM_DIRECTORY.parents[2]):
        raise CaptureError(f"{describe_outdated(changed)}: `{build_shim()}`")
    return libraries


def describe_outdated(changed: Sequence[str]) -> str:
    """A clause that says that the libraries are older than some sources."""
    suffix = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    return f"the emulated CUDA libraries were built before {changed[0]}{suffix} changed"


def changed_sources(root: Path) -> list[str]:
    """Paths of sources that have changed since the libraries were built; empty without a stamp file.

    `make shim` writes the digests of what it compiles. Only files newer than the stamp are hashed (1 ms in all).
    """
    stamp = root / "src" / "presim" / "shim" / "lib" / ".built"
    try:
        built_ns, lines = stamp.stat().st_mtime_ns, stamp.read_text().splitlines()
    except FileNotFoundError:
        return []
    digests = {path: digest for digest, path in (line.split(maxsplit=1) for line in lines)}
    changed = set(digests)
    for entry in shim_sources(root):
        path = os.path.relpath(entry.path, root)
        if entry.stat().st_mtime_ns <= built_ns or digests.get(path) == _digest(entry.path):
            changed.discard(path)
        else:
            changed.add(path)
    return sorted(changed)


def shim_sources(root: Path) -> Iterator[os.DirEntry[str]]:
    """The files that a checkout's libraries are built from, as listed in the Makefile."""
    with os.scandir(root) as entries:
        yield from (entry for entry in entries if entry.name == "CMakeLists.txt")
    yield from _files_below(root / "src" / "presim" / "shim")


def _files_below(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir():
                yield entry
            elif entry.name not in _NOT_COMPILED:
                yield from _files_below(entry.path)


def _digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
