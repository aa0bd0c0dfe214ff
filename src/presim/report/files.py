"""Files appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from presim.errors import InputError


def write_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Write to a temporary name beside ``path`` and rename, so that no half file is ever seen."""
    target = Path(path)
    try:
        handle, name = tempfile.mkstemp(prefix=".presim-", dir=target.parent)
    except OSError as error:
        raise _cannot_write(target, error) from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).chmod(0o644)  # mkstemp's 0600 would keep colleagues from reading it
        os.replace(name, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        if isinstance(error, OSError):
            raise _cannot_write(target, error) from error
        raise


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise now what `write_file` would raise later: before a capture of minutes rather than after it."""
    target = Path(path)
    if target.is_dir():
        raise InputError(f"cannot write {target}: it is a directory; name a file")
    if not os.access(target.parent, os.W_OK):
        why = "there is no such directory" if not target.parent.is_dir() else "its directory is not writable"
        raise InputError(f"cannot write {target}: {why}; choose another path")


def _cannot_write(target: Path, error: OSError) -> InputError:
    return InputError(f"cannot write {target}: {error.strerror}; choose another path or free some space")
