"""Disk cache of replies for composed plans: one small file per reply, named by the hash of everything it depends on.

Files are written under a temporary name and renamed, contain MessagePack that is checked against its schema, and count
as missing if unreadable: any number of searches may read and write at once. If the folder exceeds its limit, the oldest
files are deleted. ``PRESIM_CACHE_MB`` sets the limit; 0 disables the cache.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import platformdirs

import presim
from presim.errors import InputError
from presim.planner.trials.trial_messages import Reply
from presim.system.files import FormatError, decode_messagepack, make_folder, read_bytes, write_file

Content = TypeVar("Content")
_VARIABLE = "PRESIM_CACHE_MB"
_DEFAULT_MB = 64  # about 60,000 replies
_WRITES_PER_CHECK = 256  # writes between two checks of the folder's size
_SHRINK_TO = 0.8  # share of the limit that remains after deleting old files
_SOURCES = (".py", ".toml", ".json", ".parquet", ".txt")


class ReplyCache:
    """Replies stored by the hash of their inputs."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder, self._limit = folder, limit_bytes
        self._writes = 0

    @classmethod
    def default(cls, kind: str = "plans") -> ReplyCache | None:
        """The user's cache of a kind (plans or captures); None if disabled or not writable."""
        limit = os.environ.get(_VARIABLE, str(_DEFAULT_MB))
        if not limit.isdecimal():
            raise InputError(f"{_VARIABLE}={limit}: set a whole number of megabytes, or 0 for no cache")
        if not int(limit):
            return None
        folder = Path(platformdirs.user_cache_dir("presim")) / kind
        try:
            make_folder(folder)
        except InputError:
            return None
        return cls(folder, int(limit) * 1_000_000)

    def find(self, name: str) -> Reply | None:
        """The reply stored under a name; None if missing."""
        return self.read(name, Reply)

    def read(self, name: str, content: type[Content]) -> Content | None:
        """What is stored under a name, of this type; None if missing."""
        path = self._path(name)
        try:
            stored = decode_messagepack(read_bytes(path, "it is made again"), content)
            os.utime(path)  # recently used files are deleted last
        except (OSError, InputError, FormatError):
            return None
        return stored

    def add(self, name: str, reply: object) -> None:
        """Store a reply; does nothing if the disk is full."""
        path = self._path(name)
        with contextlib.suppress(InputError):
            make_folder(path.parent)
            write_file(path, msgspec.msgpack.encode(reply))
        self._writes += 1
        if self._writes % _WRITES_PER_CHECK == 1:
            self._shrink()

    def _path(self, name: str) -> Path:
        return self._folder / name[:2] / name[2:]

    def _shrink(self) -> None:
        files = []
        for path in self._folder.glob("*/*"):
            with contextlib.suppress(OSError):  # another search deleted it
                status = path.stat()
                files.append((status.st_mtime_ns, status.st_size, path))
        total_bytes = sum(size for _, size, _ in files)
        if total_bytes <= self._limit:
            return
        for _, size, path in sorted(files):
            if total_bytes <= _SHRINK_TO * self._limit:
                break
            with contextlib.suppress(OSError):
                path.unlink()
            total_bytes -= size


def name_of(*parts: object) -> str:
    """Hash of a reply's inputs and of presim's own sources."""
    digest = hashlib.sha256(sources().encode())
    for part in parts:
        data = part if isinstance(part, bytes) else repr(part).encode()
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


@functools.cache
def sources() -> str:
    """Identify this presim installation: version, and size and modification time of each file."""
    package = Path(presim.__file__).parent
    return f"{presim.__version__} {state_of(sorted(path for path in package.rglob('*') if path.suffix in _SOURCES))}"


def state_of(paths: Sequence[Path]) -> str:
    """Identify the state of files: size and modification time of each."""
    digest = hashlib.sha256()
    for path in paths:
        status = path.stat()
        digest.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()
