"""Build the operator hook against the installed PyTorch, once per version.

The hook uses PyTorch's C++ interface, which has no stable ABI, so it cannot be built in advance for every version. A
prebuilt hook beside the shim is used if there is one; otherwise it is compiled into the user's cache (about 10 s).
"""

from __future__ import annotations

import argparse
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
    """The hook for this PyTorch, if already built."""
    name = _file_name(torch)
    places = (SHIM_DIRECTORY / "lib" / name, cache_directory() / name)
    return next((path for path in places if path.exists()), None)


def ensure_hook(torch: Torch) -> Path:
    """The hook for this PyTorch, compiled if necessary.

    Raises:
        CaptureError: there is no compiler, or it failed.
    """
    return hook_path(torch) or build_hook(torch, cache_directory())


def cache_directory() -> Path:
    """The directory for this user's compiled hooks."""
    return Path(platformdirs.user_cache_dir("presim")) / "hook"


def _file_name(torch: Torch) -> str:
    digest = hashlib.sha256(torch.version.encode())
    for source in sorted([*SOURCES.rglob("*.cpp"), *SOURCES.rglob("*.h"), *(SHIM_DIRECTORY / "core").glob("*.h")]):
        digest.update(source.read_bytes())
    return f"presim_hook-{torch.version}-{digest.hexdigest()[:12]}.so"


def build_hook(torch: Torch, directory: Path) -> Path:
    """Compile the hook for this PyTorch into a directory.

    Raises:
        CaptureError: there is no compiler, it failed, or the directory cannot be written.
    """
    compiler = find_compiler()
    if compiler is None:
        raise CaptureError(
            "the operator hook must be compiled for this PyTorch, but there is no C++ compiler: `apt-get install g++`"
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
            f"the operator hook must be compiled for this PyTorch and stored in {directory} ({reason}): "
            "choose another cache folder with `export XDG_CACHE_HOME=DIR`"
        )


def _unit() -> str:
    """All sources in one translation unit, because PyTorch's headers take seconds to parse."""
    return "".join(f'#include "{source}"\n' for source in sorted(SOURCES.rglob("*.cpp")))


def _compile(command: list[str], unit: str = "") -> str | None:
    """Run the compiler; returns its errors or None. Its child processes end with it, on Ctrl-C too."""
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
        compiler.stderr.read()  # returns when the last process that holds the pipe has ended
        raise
    return errors if compiler.returncode else None


def _command(compiler: str, torch: Torch, target: Path) -> list[str]:
    include = torch.directory / "include"
    libraries = torch.directory / "lib"
    return [
        compiler,
        *("-O2", "-std=c++20", "-fPIC", "-shared", "-fvisibility=hidden"),
        "-DNDEBUG",  # without it, RecordFunction has an extra member
        *(f"-I{path}" for path in (SOURCES, SHIM_DIRECTORY / "core", SOURCES / "cuda_headers", include)),
        f"-I{include / 'torch' / 'csrc' / 'api' / 'include'}",
        *("-x", "c++", "-"),
        *("-o", str(target), f"-L{libraries}", "-lc10_cuda", "-lc10", "-ltorch_cpu"),
    ]


def main() -> None:
    """``python -m presim.capture.setup.hook_build``: build the hook for the installed PyTorch beside the shim.

    A wheel or image built afterwards contains it and needs no compiler with that PyTorch. With ``--cache``, build it
    into the user's cache instead, unless it is there, so that the first capture need not.
    """
    parser = argparse.ArgumentParser(prog="python -m presim.capture.setup.hook_build")
    parser.add_argument("--cache", action="store_true", help="into the user's cache, unless it is there")
    torch = require_torch()
    print(ensure_hook(torch) if parser.parse_args().cache else build_hook(torch, SHIM_DIRECTORY / "lib"))


if __name__ == "__main__":
    main()
