"""Stores finished captures in a file, so that a repeated `presim explain` continues after an interruption."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

import presim
from presim.errors import InputError
from presim.planner.search_request import SearchRequest
from presim.planner.trials.trial import Point, key
from presim.planner.trials.trial_messages import Reply
from presim.system.files import FormatError, check_writable, decode_json, digest_of, names_file, read_bytes, write_file

_FORMAT = "presim-explain/1"


class _Line(msgspec.Struct, frozen=True):
    """The capture of a point. ``command``: digest of the command and its options."""

    command: str
    point: str
    by: str
    reply: Reply


class _File(msgspec.Struct, frozen=True):
    schema: str
    captures: list[_Line]


class NoCaptureFile:
    """Stores no captures. Used without ``--study``."""

    def find(self, point: Point) -> tuple[str, Reply] | None:
        """Always None."""
        return None

    def add(self, point: Point, by: str, reply: Reply) -> None:
        """Discard the capture."""


class CaptureFile:
    """A file with the reply of each captured point. Failures are not stored: another attempt may succeed."""

    def __init__(self, path: Path, request: SearchRequest) -> None:
        check_writable(path)
        self._path, self._command = path, _digest(request)
        _read(path)

    def find(self, point: Point) -> tuple[str, Reply] | None:
        """The stored capture of a point, or None."""
        lines = _read(self._path)
        return next(
            ((line.by, line.reply) for line in lines if (line.command, line.point) == (self._command, key(point))), None
        )

    def add(self, point: Point, by: str, reply: Reply) -> None:
        """Store a reply. The file is complete when this returns."""
        if reply.figures is not None:
            lines = [*_read(self._path), _Line(self._command, key(point), by, reply)]
            write_file(self._path, msgspec.json.format(msgspec.json.encode(_File(_FORMAT, lines))))


def _read(path: Path) -> list[_Line]:
    if not path.exists():
        return []
    try:
        file = decode_json(read_bytes(path, "name another file with --study"), _File)
    except FormatError as error:
        raise InputError(f"{path} is not a file of captures ({error}); name another one with --study") from error
    if file.schema != _FORMAT:
        raise InputError(f"{path} has the format {file.schema!r}, not {_FORMAT}; name another one with --study")
    return file.captures


def _digest(request: SearchRequest) -> str:
    """Digest of a command on a cluster: its words, the contents of files among them, and presim's version."""
    words = list(request.confirm_command)
    files = [digest_of(word) for word in words if names_file(word)]
    options = sorted((name, str(value)) for name, value in request.options.items())
    subject = [presim.__version__, request.subject, request.framework, words, files, options]
    return hashlib.sha256(msgspec.json.encode(subject)).hexdigest()[:16]
