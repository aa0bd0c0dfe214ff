"""JSON with magic and version in front, as in all files of a saved trace."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TypeVar

import msgspec

from presim.errors import InputError
from presim.system.files import FormatError, decode_json
from presim.system.files.field_bounds import Version

MAGIC = "presim-trace"
VERSION = 1


class Header(msgspec.Struct, frozen=True):
    """Fields at the start of every file."""

    magic: str
    version: Version


_Read = TypeVar("_Read", bound=Header)


def decode(data: bytes, type_: type[_Read], path: Path) -> _Read:
    """Decode JSON to a struct; check magic and version first."""
    try:
        header = decode_json(data, Header)
    except FormatError as error:
        raise InputError(
            f"{path} is not a trace of presim's ({error}); capture one with `presim run --save`"
        ) from error
    if header.magic != MAGIC:
        raise InputError(
            f"{path} is not a trace of presim's (magic {header.magic!r}); capture one with `presim run --save`"
        )
    if header.version > VERSION:
        raise InputError(
            f"{path} was written by a newer presim (format {header.version}, this one reads {VERSION}); upgrade presim"
        )
    try:
        return decode_json(data, type_)
    except FormatError as error:
        raise InputError(f"{path} is damaged ({error}); copy or capture the trace again") from error


def encode(value: msgspec.Struct) -> bytes:
    """JSON with sorted keys, so that files diff; by way of builtins because msgspec does not sort integer keys."""
    return msgspec.json.encode(msgspec.to_builtins(value, str_keys=True), order="sorted")


def digest(data: bytes) -> str:
    """A hash that detects damage."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()
