"""A file with the finished placements of a search, from which an interrupted search is resumed.

The first line says which search the file is of; each other line has a placement with its refusal, its estimate or its
simulated figures, as JSON. A line that a killed search left incomplete is cut off.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

import presim
from presim.errors import InputError
from presim.hardware import Cluster
from presim.post_training.placement_space import Value
from presim.post_training.rl_answer import Alternative
from presim.post_training.rl_request import RlRequest
from presim.system.files import FormatError, check_folder, decode_json, read_bytes, shortened

_SOLVE = "name another file with --study"


class StudyHead(msgspec.Struct, frozen=True, kw_only=True):
    """The first line."""

    search: str  # digest of everything that its placements depend on
    presim: str
    kind: str = "presim-rl-study/1"


class Placements:
    """Finished placements by their text; those of `PlacementStudy` outlive the search."""

    def __init__(self) -> None:
        self.alternatives: dict[str, Alternative] = {}

    def find(self, text: str) -> Alternative | None:
        """The stored placement; None if there is none."""
        return self.alternatives.get(text)

    def add(self, alternative: Alternative) -> None:
        """Store a placement, in place of what is stored of it."""
        self.alternatives[alternative.placement] = alternative


class PlacementStudy(Placements):
    """Placements that are appended to an open file."""

    def __init__(self, file: IO[bytes], lines: Sequence[bytes], name: str) -> None:
        super().__init__()
        self._file = file
        try:
            for line in lines:
                super().add(decode_json(line, Alternative))
        except FormatError as error:
            raise InputError(f"a placement of the study {shortened(name)} is damaged ({error}); {_SOLVE}") from error

    def add(self, alternative: Alternative) -> None:
        """Store a placement, and write it."""
        super().add(alternative)
        self._file.write(msgspec.json.encode(alternative) + b"\n")
        self._file.flush()


def search_digest(request: RlRequest, cluster: Cluster, vary: Mapping[str, Sequence[Value]]) -> str:
    """A short value that differs where a search's placements do."""
    parts = (repr(request), repr(cluster), repr(sorted(vary.items())))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


@contextlib.contextmanager
def open_study(path: str | os.PathLike[str], search: str) -> Iterator[PlacementStudy]:
    """Open and lock the file of a search, which is made if it is not there.

    Raises:
        InputError: the file cannot be opened, is none of a search, is of another search, or is in use.
    """
    file_path, name = Path(path), os.fspath(path)
    check_folder(file_path.absolute().parent)
    try:
        file = file_path.open("ab")
    except OSError as error:
        raise InputError(f"cannot open the study {shortened(name)}: {error.strerror}; {_SOLVE}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(
                f"another search is using the study {shortened(name)}; wait for it, or {_SOLVE}"
            ) from error
        data = read_bytes(file_path, _SOLVE)
        complete = data[: data.rfind(b"\n") + 1]
        head = StudyHead(search=search, presim=presim.__version__)
        if complete:
            _check_head(complete, head, name)
        elif data and not data.startswith(b"{"):
            raise InputError(f"{shortened(name)} is no study of a search; {_SOLVE}")
        os.truncate(file_path, len(complete))
        if not complete:
            file.write(msgspec.json.encode(head) + b"\n")
            file.flush()
        yield PlacementStudy(file, complete.splitlines()[1:], name)


def _check_head(data: bytes, expected: StudyHead, name: str) -> None:
    try:
        head = decode_json(data.splitlines()[0], StudyHead)
    except FormatError as error:
        raise InputError(f"{shortened(name)} is no study of a search; {_SOLVE}") from error
    if head != expected:
        was = f"by presim {head.presim}" if head.presim != expected.presim else "for another job, cluster or --vary"
        raise InputError(f"the study {shortened(name)} was made {was}; {_SOLVE}")
