"""Writes files whole or not at all, and makes folders."""

from __future__ import annotations

import contextlib
import gzip
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from presim.errors import InputError
from presim.system.files.file_limits import shortened
from presim.system.files.read import reason


def write_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Write to a temporary name beside ``path`` and rename, so that no half file is ever seen.

    Pipes and devices (``/dev/stdout``, ``>(gzip …)``) are written to as they are, and links stay links.
    """
    target = Path(path)
    try:
        if _is_stream(target):
            target.write_bytes(content)
        else:
            _replace(target.resolve(), content)
    except BrokenPipeError:  # who reads it has had enough
        raise
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(
            f"cannot write {shortened(target)}: {_reason(error)}; choose another path or free some space"
        ) from error


def _replace(target: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(prefix=".presim-", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).chmod(0o644)  # mkstemp's 0600 would keep colleagues from reading it
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _is_stream(target: Path) -> bool:
    return target.exists() and not target.is_file()


def packed(content: bytes) -> bytes:
    """The content packed by gzip; the same content gives the same bytes."""
    return gzip.compress(content, compresslevel=3, mtime=0)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise now what `write_file` would raise later: before a capture of minutes rather than after it."""
    if not os.fspath(path):
        raise InputError("the name of a file to write is empty; choose one")
    target = Path(path)
    try:
        folder = target.resolve().parent
        is_folder, is_stream = target.is_dir(), _is_stream(target)
        if len(os.fsencode(target.name)) > os.pathconf(folder, "PC_NAME_MAX"):
            raise InputError(f"cannot write {shortened(target)}: File name too long; choose another path")
    except FileNotFoundError:  # of pathconf, or of the working directory
        why = "there is no such directory" if has_working_folder() else _NO_FOLDER
        raise InputError(f"cannot write {shortened(target)}: {why}; choose another path") from None
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"cannot write {shortened(target)}: {_reason(error)}; choose another path") from error
    if is_folder:
        raise InputError(f"cannot write {target}: it is a directory; name a file")
    if not is_stream and not os.access(folder, os.W_OK):
        why = "there is no such directory" if not folder.is_dir() else "its directory is not writable"
        raise InputError(f"cannot write {target}: {why}; choose another path")


def check_apart(output: str | os.PathLike[str], inputs: Iterable[str | os.PathLike[str]]) -> None:
    """Raise if an output file is one of the files that are read, which would then be lost.

    Raises:
        InputError: both names are of one file.
    """
    for source in inputs:
        if os.path.isfile(output) and os.path.isfile(source) and os.path.samefile(output, source):
            raise InputError(f"{shortened(Path(output))} is read, and would be overwritten; name another file to write")


def make_folder(path: Path) -> None:
    """A folder with all its parents."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot write to {shortened(path)}: {reason(error)}; choose another folder") from error


def check_folder(path: str | os.PathLike[str]) -> None:
    """Raise now what `make_folder` would raise later."""
    folder = Path(path)
    try:
        nearest = next(part for part in (folder, *folder.absolute().parents) if part.exists() or part.is_symlink())
        if any(len(os.fsencode(part)) > os.pathconf(nearest, "PC_NAME_MAX") for part in folder.parts):
            raise InputError(f"cannot write to {shortened(folder)}: File name too long; choose another folder")
        if nearest.is_symlink() and not nearest.exists():
            raise InputError(f"cannot write to {shortened(folder)}: {nearest} is a broken link; choose another folder")
    except FileNotFoundError:
        raise InputError(f"cannot write to {shortened(folder)}: {_NO_FOLDER}; choose another folder") from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot write to {shortened(folder)}: {reason(error)}; choose another folder") from error
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        why = "is not writable" if nearest.is_dir() else "is a file"
        raise InputError(f"cannot write to {folder}: {nearest} {why}; choose another folder")
    try:
        os.rmdir(tempfile.mkdtemp(dir=nearest))  # root may write to /proc, which takes no folders
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {nearest} takes no folders; choose another folder") from error


_NO_FOLDER = "the working directory was deleted"


def has_working_folder() -> bool:
    """Whether the working directory still exists."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _reason(error: Exception) -> str:
    if isinstance(error, OSError | ValueError):
        return reason(error)
    return "Too many levels of symbolic links"  # `Path.resolve` raises a RuntimeError for a loop
