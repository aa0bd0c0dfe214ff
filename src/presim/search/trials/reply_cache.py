"""What composed plans came to, kept between searches: one small file for each, under the hash of all it rests on.

Files appear whole (written beside and renamed), hold MessagePack that is checked against its schema, and a file that
cannot be read counts as missing: any number of searches may read and write at once. The oldest go when the folder is
larger than its limit. ``PRESIM_CACHE_MB`` sets that limit; 0 keeps nothing.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import platformdirs

import presim
from presim.errors import InputError
from presim.files import make_folder, write_file
from presim.search.trials.job import Reply

_SWITCH = "PRESIM_CACHE_MB"
_USUAL_MB = 64  # some 60,000 replies
_LOOKED_AT = 256  # writes between two looks at the folder's size
_KEPT = 0.8  # of the limit, after the oldest went
_SOURCES = (".py", ".toml", ".json", ".parquet", ".txt")


class ReplyCache:
    """Replies by what they rest on."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder, self._limit = folder, limit_bytes
        self._writes = 0

    @classmethod
    def usual(cls, kind: str = "plans") -> ReplyCache | None:
        """The user's of a kind, plans or captures, if they want one and it can be written."""
        said = os.environ.get(_SWITCH, str(_USUAL_MB))
        if not said.isdecimal():
            raise InputError(f"{_SWITCH}={said}: the size of the cache is a number of megabytes; 0 for none")
        if not int(said):
            return None
        folder = Path(platformdirs.user_cache_dir("presim")) / kind
        try:
            make_folder(folder)
        except InputError:
            return None
        return cls(folder, int(said) * 1_000_000)

    def find(self, name: str) -> Reply | None:
        """The reply of that name."""
        path = self._path(name)
        try:
            reply = msgspec.msgpack.decode(path.read_bytes(), type=Reply)
            os.utime(path)  # it is of use: others go first
        except (OSError, msgspec.MsgspecError):
            return None
        return reply

    def add(self, name: str, reply: Reply) -> None:
        """Keep a reply; a full disk keeps none."""
        path = self._path(name)
        with contextlib.suppress(InputError):
            make_folder(path.parent)
            write_file(path, msgspec.msgpack.encode(reply))
        self._writes += 1
        if self._writes % _LOOKED_AT == 1:
            self._shrink()

    def _path(self, name: str) -> Path:
        return self._folder / name[:2] / name[2:]

    def _shrink(self) -> None:
        files = []
        for path in self._folder.glob("*/*"):
            with contextlib.suppress(OSError):  # another search took it away
                found = path.stat()
                files.append((found.st_mtime_ns, found.st_size, path))
        held = sum(size for _, size, _ in files)
        if held <= self._limit:
            return
        for _, size, path in sorted(files):
            if held <= _KEPT * self._limit:
                break
            with contextlib.suppress(OSError):
                path.unlink()
            held -= size


def name_of(*parts: object) -> str:
    """The hash of what a reply rests on, presim's own sources among it."""
    digest = hashlib.sha256(sources().encode())
    for part in parts:
        data = part if isinstance(part, bytes) else repr(part).encode()
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


@functools.cache
def sources() -> str:
    """Tells this presim from others: version, and size and time of each of its files."""
    package = Path(presim.__file__).parent
    return f"{presim.__version__} {state_of(sorted(path for path in package.rglob('*') if path.suffix in _SOURCES))}"


def state_of(paths: Sequence[Path]) -> str:
    """Tells one state of files from another."""
    digest = hashlib.sha256()
    for path in paths:
        found = path.stat()
        digest.update(f"{path} {found.st_size} {found.st_mtime_ns}\n".encode())
    return digest.hexdigest()
