"""What turns a script into a trace, as one digest: captures that are kept are used as long as it stays the same."""

from __future__ import annotations

import hashlib
from pathlib import Path

from presim.capture.setup.environment import find_torch
from presim.capture.setup.shim import SHIM_DIRECTORY, shim_paths


def capture_digest() -> str:
    """SHA-256 of presim's capture and trace code, the emulated libraries, the hook, and PyTorch's version."""
    digest = hashlib.sha256((torch.version if (torch := find_torch()) else "").encode())
    libraries = [path for path in shim_paths() if path.exists()]
    for path in [*capture_sources(Path(__file__).parents[2]), *libraries]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def capture_sources(package: Path) -> list[Path]:
    """Files of capture, of traces and of the hook, in presim's package, in all of their packages."""
    files = [*(package / "capture").rglob("*.py"), *(package / "trace").rglob("*.py")]
    return sorted([*files, *(SHIM_DIRECTORY / "hook").rglob("*.*")])
