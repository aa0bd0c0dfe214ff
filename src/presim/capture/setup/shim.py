"""The emulated CUDA libraries: where they are, whether they are built, and whether their sources are still the same."""

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
    """The built shim, in the order in which its libraries are preloaded; empty where it is not built."""
    paths = shim_paths()
    return paths if all(path.exists() for path in paths) else []


def shim_paths() -> list[Path]:
    """Where the shim's libraries are once built."""
    directory = SHIM_DIRECTORY / "lib"
    return [directory / name for name in ("libpresim_shim.so", *LIBRARIES)]


def build_shim() -> str:
    """The command that builds the shim: here, where this is a checkout."""
    root = SHIM_DIRECTORY.parents[2]
    return f"make -C {root} shim" if (root / "Makefile").exists() else "pip install --force-reinstall --no-deps presim"


def require_shim() -> list[Path]:
    """The shim's libraries.

    Raises:
        CaptureError: they are not built, or from other sources than those that are here: they record by old rules.
    """
    libraries = shim_libraries()
    if not libraries:
        raise CaptureError(
            f"the emulated CUDA libraries are not built in {SHIM_DIRECTORY / 'lib'}: "
            f"`{build_shim()}`; `presim doctor` checks the rest"
        )
    if changed := changed_sources(SHIM_DIRECTORY.parents[2]):
        raise CaptureError(f"{outdated(changed)}: `{build_shim()}`")
    return libraries


def outdated(changed: Sequence[str]) -> str:
    """In words that the libraries are older than some sources."""
    more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    return f"the emulated CUDA libraries were built before {changed[0]}{more} changed"


def changed_sources(root: Path) -> list[str]:
    """Sources of a checkout whose libraries were built from other ones, by path; none where nothing can be told.

    `make shim` leaves the digests of what it compiles. Only files that are younger are looked into (1 ms in all).
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
    """The files that a checkout's libraries are built from, as the Makefile has them."""
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
