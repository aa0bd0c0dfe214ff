"""Find PyTorch and a compiler on this machine, without importing torch, which is slow."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import shutil
import sys
from pathlib import Path

from presim.errors import CaptureError

SUPPORTED_TORCH = ((2, 11), (2, 15))  # oldest and newest minor version tested
SUPPORTED_CUDA = "13."
REFERENCE_TORCH = "2.14.0"  # version used by the tests


@dataclasses.dataclass(frozen=True)
class Torch:
    """The installed PyTorch, as described by its files."""

    directory: Path
    version: str  # e.g. 2.14.0+cu130
    cuda: str  # e.g. 13.0; empty for a build without CUDA

    @property
    def minor(self) -> tuple[int, int]:
        """Major and minor version."""
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)


def find_torch() -> Torch | None:
    """This interpreter's PyTorch, or None."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    directory = Path(spec.origin).parent
    try:
        text = (directory / "version.py").read_text()
    except OSError:
        return None
    version = re.search(r"__version__ = '([^']+)'", text)
    cuda = re.search(r"^cuda\b[^=]*= '([^']+)'", text, re.MULTILINE)
    return Torch(directory, version.group(1) if version else "?", cuda.group(1) if cuda else "")


def torch_problem(torch: Torch | None) -> str | None:
    """Why this PyTorch cannot be captured, as a clause; None if it can. `install_torch` is the fix."""
    if torch is None:
        return f"PyTorch is not installed for {sys.executable}"
    if not torch.cuda:
        return f"PyTorch {torch.version} is a CPU-only build, but presim needs the CUDA build"
    if not torch.cuda.startswith(SUPPORTED_CUDA):
        return f"PyTorch {torch.version} is built for CUDA {torch.cuda}, but presim emulates CUDA 13"
    if not SUPPORTED_TORCH[0] <= torch.minor <= SUPPORTED_TORCH[1]:
        first, last = (".".join(map(str, version)) for version in SUPPORTED_TORCH)
        return f"PyTorch {torch.version} is outside the supported versions {first} to {last}"
    return None


def install_torch() -> str:
    """The command that installs the reference version without nvidia-* packages."""
    return f"{Path(sys.executable).name} -m pip install --no-deps torch==={REFERENCE_TORCH}"


def require_torch() -> Torch:
    """The installed PyTorch.

    Raises:
        CaptureError: it is missing, CPU-only, or of an unsupported version.
    """
    torch = find_torch()
    problem = torch_problem(torch)
    if problem or torch is None:
        raise CaptureError(f"{problem}: `{install_torch()}`; `presim doctor` checks the rest")
    return torch


def find_compiler() -> str | None:
    """A C++ compiler for the operator hook, or None."""
    return next((path for name in ("g++", "c++", "clang++") if (path := shutil.which(name))), None)
