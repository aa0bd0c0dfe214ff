"""``python -m presim.capture.setup.build_transformer_engine``: a wheel of Transformer Engine for the installed PyTorch.

PyPI has Transformer Engine's core as a wheel, but its PyTorch part (``transformer-engine-torch``) only as source: 33
C++ files, each of which takes a compiler 20 seconds for PyTorch's headers alone. They are compiled as a few joined
files, one per concurrent compiler (``unity_build.py``). The wheel is built once per version of PyTorch and kept in the
user's cache. No GPU or CUDA toolkit is needed: the headers come from NVIDIA's packages, whose libraries (2.6 GB) are
deleted at once, and presim's emulated libraries let the build import PyTorch.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

import platformdirs

from presim.capture.setup import unity_build
from presim.capture.setup.environment import Torch, find_compiler, require_torch
from presim.capture.setup.shim import require_shim
from presim.errors import CaptureError
from presim.system.files.scratch import temporary_folder

TRANSFORMER_ENGINE = "2.20.2"  # version used by the tests
# Included by PyTorch's and Transformer Engine's headers.
TOOLKIT_PARTS = "cccl,crt,cublas,cudart,curand,cusolver,cusparse,nvrtc,nvtx"
MAX_PARTS = 4  # joined C++ files; each one parses the headers again
HEADER_PACKAGES = ("cuda-toolkit", "nvidia-cudnn-cu13", "nvidia-nccl-cu13")


def wheel_directory(torch: Torch, *, optimised: bool = True) -> Path:
    """The directory for wheels built for this PyTorch and user."""
    kind = "" if optimised else "-unoptimised"
    return Path(platformdirs.user_cache_dir("presim")) / "wheels" / f"torch-{torch.version}{kind}"


def find_wheel(torch: Torch, version: str = TRANSFORMER_ENGINE, *, optimised: bool = True) -> Path | None:
    """The wheel for this PyTorch and Python, if already built."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    wheels = wheel_directory(torch, optimised=optimised).glob(f"transformer_engine_torch-{version}-{python}-*.whl")
    return next(iter(sorted(wheels)), None)


def build_wheel(torch: Torch, jobs: int, version: str = TRANSFORMER_ENGINE, *, optimised: bool = True) -> Path:
    """Build the wheel into the user's cache; one that is not ``optimised`` is for tests, which need no host times.

    Raises:
        CaptureError: there is no compiler, the emulated libraries are not built, or a step failed.
    """
    libraries = require_shim()[0].parent
    if find_compiler() is None:
        raise CaptureError("Transformer Engine must be compiled, but there is no C++ compiler: `apt-get install g++`")
    target = wheel_directory(torch, optimised=optimised)
    target.mkdir(parents=True, exist_ok=True)
    with temporary_folder("transformer-engine") as folder:
        headers = Path(folder) / "headers"
        _fetch_headers(headers)
        environment = _build_environment(headers, libraries, jobs)
        if not optimised:
            environment["CXX"] = str(_unoptimised_compiler(Path(folder)))
        source = _fetch_source(Path(folder), version, environment)
        unity_build.join(source / "csrc", parts=min(jobs, MAX_PARTS))
        _pip(
            *("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source)),
            environment=environment,
        )
        built = next(Path(folder).glob("transformer_engine_torch-*.whl"))
        temporary = target / f".{built.name}.{os.getpid()}"
        shutil.copyfile(built, temporary)  # the cache may be on another file system
        return temporary.rename(target / built.name)


def header_requirements() -> list[str]:
    """NVIDIA's header packages, at the versions that the installed PyTorch requires."""
    requirements = importlib.metadata.requires("torch") or []
    pins = [line.split(";")[0].strip() for line in requirements]
    header_pins = [pin for pin in pins if pin.startswith(HEADER_PACKAGES)]
    return [
        f"cuda-toolkit[{TOOLKIT_PARTS}]{pin.split(']')[-1]}" if pin.startswith("cuda-toolkit") else pin
        for pin in header_pins
    ]


def _fetch_headers(target: Path) -> None:
    requirements = header_requirements()
    if not requirements:
        raise CaptureError("this PyTorch does not list its CUDA packages: install one from PyPI")
    _pip("install", "--quiet", "--no-warn-conflicts", "--target", str(target), *requirements)
    for path in target.rglob("*"):
        if path.is_file() and (".so" in path.suffixes or path.suffix == ".a"):
            path.unlink()


def _fetch_source(folder: Path, version: str, environment: dict[str, str]) -> Path:
    _pip(
        *("download", "--quiet", "--no-deps", "--no-build-isolation", "--no-binary", "transformer-engine-torch"),
        *("--dest", str(folder), f"transformer-engine-torch=={version}"),
        environment=environment,
    )
    archive = next(folder.glob("transformer_engine_torch-*.tar.gz"))
    shutil.unpack_archive(archive, folder)
    return folder / archive.name.removesuffix(".tar.gz")


def _build_environment(headers: Path, libraries: Path, jobs: int) -> dict[str, str]:
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),  # finds a venv's ninja
        "LD_LIBRARY_PATH": str(libraries),  # the build imports PyTorch
        "PYTHONPATH": str(headers),
        "NVTE_FRAMEWORK": "pytorch",
        "NVTE_BUILD_USE_NVIDIA_WHEELS": "1",
        "NVTE_PYTORCH_FORCE_BUILD": "TRUE",  # do not try to download a build first
        "NVTE_WITH_NCCL_EP": "0",  # expert parallelism over NCCL's device interface, which is not emulated
        "MAX_JOBS": str(jobs),
    }


def _unoptimised_compiler(folder: Path) -> Path:
    """A compiler that ignores the build's own -O3."""
    script = folder / "g++"
    script.write_text('#!/bin/sh\nexec c++ "$@" -O0\n')
    script.chmod(0o755)
    return script


def _pip(*arguments: str, environment: dict[str, str] | None = None) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    if subprocess.run(command, env=environment, check=False).returncode:
        raise CaptureError(f"`{' '.join(command)}` failed; see pip's messages above")


def main() -> int:
    """Build unless the cache has a wheel, and print the wheel's path."""
    parser = argparse.ArgumentParser(
        prog="python -m presim.capture.setup.build_transformer_engine", description=__doc__
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="concurrent compilers, each up to 3 GB")
    parser.add_argument("--force", action="store_true", help="build even if the cache has a wheel")
    parser.add_argument("--unoptimised", action="store_true", help="for tests: in half the time, kept apart")
    options = parser.parse_args()
    optimised = not options.unoptimised
    try:
        torch = require_torch()
        wheel = None if options.force else find_wheel(torch, optimised=optimised)
        print(wheel or build_wheel(torch, options.jobs, optimised=optimised))
    except CaptureError as error:
        print(f"presim: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
