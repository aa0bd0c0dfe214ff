"""Writes files whole or not at all, and reads files that may be packed."""

from __future__ import annotations

import contextlib
import gzip
import os
import tempfile
import zlib
from pathlib import Path

from presim.errors import InputError

MOST_BYTES = 8 << 30  # of a file when it is unpacked: a gzip of a few MiB may be said to hold terabytes
_PART_BYTES = 16 << 20  # a read takes memory for all that it asks for


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
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror}; choose another path or free some space") from error


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


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise now what `write_file` would raise later: before a capture of minutes rather than after it."""
    if not os.fspath(path):
        raise InputError("the name of a file to write is empty; choose one")
    target = Path(path)
    folder = target.resolve().parent
    if target.is_dir():
        raise InputError(f"cannot write {target}: it is a directory; name a file")
    if not _is_stream(target) and not os.access(folder, os.W_OK):
        why = "there is no such directory" if not folder.is_dir() else "its directory is not writable"
        raise InputError(f"cannot write {target}: {why}; choose another path")


def make_folder(path: Path) -> None:
    """A folder with all its parents."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {path}: {error.strerror}; choose another folder") from error


def check_folder(path: Path) -> None:
    """Raise now what `make_folder` would raise later."""
    nearest = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        why = "is not writable" if nearest.is_dir() else "is a file"
        raise InputError(f"cannot write to {path}: {nearest} {why}; choose another folder")


def names_file(word: str) -> bool:
    """Whether a word of a command line is a file's name; one that no file can have, such as a long list, is not."""
    try:
        return Path(word).is_file()
    except (OSError, ValueError):  # too long, or with a null byte
        return False


def version(path: Path) -> tuple[int, int]:
    """When a file was changed (ns) and its size (bytes), for the key of a cache: a changed file is read again."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0  # whoever reads it says what is wrong
    return found.st_mtime_ns, found.st_size


def read_profile(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """The content of a profile, unpacked where gzip packed it, whatever it is called.

    Raises:
        InputError: it cannot be read, is empty, is cut short, or unpacks to more than ``most_bytes``.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; check its name and permissions") from error
    if not data:
        raise InputError(f"{path} is empty; record the profile again")
    if data[:2] != b"\x1f\x8b":
        return data
    unpacked = bytearray()
    try:
        with gzip.open(path) as stream:
            while len(unpacked) <= most_bytes and (part := stream.read(_PART_BYTES)):
                unpacked += part
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(
            f"{path} is cut short or damaged ({len(data):,} bytes of gzip: {error}); copy it again"
        ) from error
    if len(unpacked) > most_bytes:
        raise InputError(f"{path} unpacks to more than {most_bytes / (1 << 30):g} GiB; record fewer steps")
    return bytes(unpacked)
