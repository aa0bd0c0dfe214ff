"""Reads JSON, JSON lines and MessagePack."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, overload

import msgspec

from presim.system.files.convert import CONVERTING
from presim.system.files.file_limits import MOST_DEPTH, MOST_INTEGER, MOST_UNSIGNED, FormatError, shortened
from presim.system.files.structure import check_structure
from presim.system.files.text_encoding import utf8_of

_Value = TypeVar("_Value")


@overload
def decode_json(data: bytes | str, type: type[_Value], *, most_integer: int = ...) -> _Value: ...
@overload
def decode_json(data: bytes | str, type: Any = ..., *, most_integer: int = ...) -> Any: ...
def decode_json(data: bytes | str, type: Any = Any, *, most_integer: int = MOST_INTEGER) -> Any:
    """The value of a JSON text, checked against a type.

    Raises:
        FormatError: it is no JSON, of another type, nested too deep, or has an integer beyond ``most_integer``.
    """
    encoded = _encoded(data)
    check_structure(encoded, most_integer)
    try:
        with CONVERTING:
            return _decoder(type).decode(encoded)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FormatError(first_line(error)) from error
    except RecursionError as error:  # a type that refers to itself; the depth is checked above
        raise FormatError(f"it is nested deeper than {MOST_DEPTH} levels") from error


@functools.lru_cache(maxsize=64)
def _decoder(type: Any) -> msgspec.json.Decoder[Any]:
    """The decoder of a type: making that of a union of structs takes 50 times as long as decoding a row of a table."""
    return msgspec.json.Decoder(type)


def decode_foreign_json(data: bytes | str) -> Any:
    """The value of a JSON text of another tool: NaN and Infinity are numbers, as Python's writers have it.

    Raises:
        FormatError: it is no JSON, no UTF-8, nested too deep, or has an integer beyond 2^64.
    """
    encoded = _encoded(data)
    check_structure(encoded, MOST_UNSIGNED)
    try:
        return json.loads(encoded.decode() if isinstance(data, bytes) else data)
    except (ValueError, RecursionError) as error:
        raise FormatError(first_line(error)) from error


def decode_settings_json(data: bytes | str) -> Any:
    """The value of a JSON text that somebody wrote, as `decode_foreign_json` reads it.

    Raises:
        FormatError: as `decode_foreign_json`, or an object has a key twice: readers take the last one without a word.
    """
    value = decode_foreign_json(data)
    json.loads(_encoded(data), object_pairs_hook=_check_keys)
    return value


def _check_keys(pairs: Sequence[tuple[str, Any]]) -> None:
    """Check the keys of one object."""
    counts = Counter(key for key, _ in pairs)
    if repeated := [key for key, count in counts.items() if count > 1]:
        raise FormatError(f"an object has the key {shortened(repeated[0])!r} {counts[repeated[0]]} times")


def _encoded(data: bytes | str) -> bytes:
    """A JSON text in UTF-8 without a byte order mark."""
    if isinstance(data, str):
        return data.encode("utf-8", "surrogatepass")
    try:
        return utf8_of(data)
    except UnicodeDecodeError as error:
        raise FormatError(first_line(error)) from error


def decode_json_lines(text: str) -> Iterator[Any | FormatError]:
    """The values of a text with one JSON value per line, and the error of each line that holds none."""
    for line in text.splitlines():
        if not line.strip():
            continue
        try:
            yield decode_foreign_json(line)
        except FormatError as error:
            yield error


def decode_messagepack(data: bytes, type: type[_Value]) -> _Value:
    """The value of a MessagePack text, checked against a type.

    Raises:
        FormatError: it is no MessagePack, of another type, or nested too deep.
    """
    try:
        with CONVERTING:
            return msgspec.msgpack.decode(data, type=type)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FormatError(first_line(error)) from error
    except RecursionError as error:
        raise FormatError(f"it is nested deeper than {MOST_DEPTH} levels") from error


def first_line(error: Exception) -> str:
    """First line of an error, for use within a sentence."""
    return str(error).partition("\n")[0].strip() or type(error).__name__
