"""Build the operator hook against the installed PyTorch, once per version.

The hook uses PyTorch's C++ interface, which has no stable ABI, so it cannot be built beforehand for every version.
A prebuilt one next to the shim is used where there is one; else it is compiled into the user's cache (about 10 s).
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
from pathlib import Path

import platformdirs

from presim.capture import ctrl_c
from presim.capture.setup.environment import Torch, find_compiler, require_torch
from presim.capture.setup.shim import SHIM_DIRECTORY
from presim.errors import CaptureError

SOURCES = SHIM_DIRECTORY / "hook"


def hook_path(torch: Torch) -> Path | None:
    """The hook for this PyTorch where it is built already."""
    name = _file_name(torch)
    places = (SHIM_DIRECTORY / "lib" / name, cache_directory() / name)
    return next((path for path in places if path.exists()), None)


def ensure_hook(torch: Torch) -> Path:
    """The hook for this PyTorch, compiled where it is not built yet.

    Raises:
        CaptureError: there is no compiler, or it failed.
    """
    return hook_path(torch) or build_hook(torch, cache_directory())


def cache_directory() -> Path:
    """Where compiled hooks are kept for this user."""
    return Path(platformdirs.user_cache_dir("presim")) / "hook"


def _file_name(torch: Torch) -> str:
    digest = hashlib.sha256(torch.version.encode())
    for source in sorted([*SOURCES.rglob("*.cpp"), *SOURCES.rglob("*.h"), *(SHIM_DIRECTORY / "core").glob("*.h")]):
        digest.update(source.read_bytes())
    return f"presim_hook-{torch.version}-{digest.hexdigest()[:12]}.so"


def build_hook(torch: Torch, directory: Path) -> Path:
    """Compile the hook for this PyTorch into a directory.

    Raises:
        CaptureError: there is no compiler, it failed, or there is no place for the hook.
    """
    compiler = find_compiler()
    if compiler is None:
        raise CaptureError(
            "the operator hook has to be compiled for this PyTorch and there is no C++ compiler: `apt-get install g++`"
        )
    target = directory / _file_name(torch)
    _make(directory)
    temporary = target.with_suffix(f".{os.getpid()}.tmp")
    try:
        errors = _compile(_command(compiler, torch, temporary), _unit())
        if errors is None:
            temporary.rename(target)
            return target
    finally:
        temporary.unlink(missing_ok=True)
    first = next((line for line in errors.splitlines() if "error" in line), errors.strip()[:300])
    raise CaptureError(f"the operator hook does not compile against PyTorch {torch.version}: {first}")


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        reason = "" if os.access(directory, os.W_OK) else "not writable"
    except OSError as error:
        reason = str(error.strerror)
    if reason:
        raise CaptureError(
            f"the operator hook has to be compiled for this PyTorch and kept in {directory} ({reason}): "
            "`export XDG_CACHE_HOME=DIR` names another folder for caches"
        )


def _unit() -> str:
    """All sources as one: PyTorch's headers take seconds to read, for each source that is compiled by itself."""
    return "".join(f'#include "{source}"\n' for source in sorted(SOURCES.rglob("*.cpp")))


def _compile(command: list[str], unit: str = "") -> str | None:
    """What the compiler complained about, or None. The processes that it starts end with it, on Ctrl-C too."""
    compiler = None
    try:
        with ctrl_c.delayed():
            compiler = subprocess.Popen(
                command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
            )
        errors = compiler.communicate(unit)[1]
    except BaseException:
        if compiler is None:
            raise
        os.killpg(compiler.pid, signal.SIGKILL)
        compiler.wait()
        assert compiler.stderr is not None
        compiler.stderr.read()  # ends when the last process that holds the pipe has ended
        raise
    return errors if compiler.returncode else None


def _command(compiler: str, torch: Torch, target: Path) -> list[str]:
    include = torch.directory / "include"
    libraries = torch.directory / "lib"
    return [
        compiler,
        *("-O2", "-std=c++20", "-fPIC", "-shared", "-fvisibility=hidden"),
        "-DNDEBUG",  # RecordFunction has one more member without it
        *(f"-I{path}" for path in (SOURCES, SHIM_DIRECTORY / "core", SOURCES / "cuda_headers", include)),
        f"-I{include / 'torch' / 'csrc' / 'api' / 'include'}",
        *("-x", "c++", "-"),
        *("-o", str(target), f"-L{libraries}", "-lc10_cuda", "-lc10", "-ltorch_cpu"),
    ]


def main() -> None:
    """``python -m presim.capture.setup.hook_build``: put the hook for the installed PyTorch beside the shim.

    A wheel or image made afterwards carries it, and needs no compiler where it is used with that PyTorch.
    """
    print(build_hook(require_torch(), SHIM_DIRECTORY / "lib"))


if __name__ == "__main__":
    main()
