"""Reads the bytes and the text of files."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import zlib
from pathlib import Path
from typing import IO

from presim.errors import InputError
from presim.system.files.file_limits import MOST_BYTES, MOST_TEXT_BYTES, shortened
from presim.system.files.text_encoding import text_of

_PART_BYTES = 16 << 20  # a read takes memory for all that it asks for
_MOST_OF_A_DEVICE = 64 << 20  # a terminal has less; /dev/zero has no end, and would fill the memory
_GZIP = b"\x1f\x8b"


def read_bytes(path: str | os.PathLike[str], advice: str, most_bytes: int = MOST_BYTES) -> bytes:
    """The content of a file. ``advice``: what to do where it cannot be read; it ends the sentence.

    Raises:
        InputError: it cannot be read, or has more than ``most_bytes``.
    """
    try:
        with Path(path).open("rb") as file:
            if stat.S_ISCHR(os.fstat(file.fileno()).st_mode):
                most_bytes = min(most_bytes, _MOST_OF_A_DEVICE)
            content = file.read() if _is_small(file, most_bytes) else _limited(file, most_bytes)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {shortened(path)}: {reason(error)}; {advice}") from error
    if len(content) > most_bytes:
        raise InputError(f"{shortened(path)} has more than {most_bytes:,} bytes, the most that is read; {advice}")
    return content


def _is_small(file: IO[bytes], most_bytes: int) -> bool:
    """Whether it is known to fit; a pipe or a device says nothing of its size, and may have no end."""
    status = os.fstat(file.fileno())
    return stat.S_ISREG(status.st_mode) and 0 < status.st_size <= most_bytes


def _limited(file: IO[bytes], most_bytes: int) -> bytes:
    content = bytearray()
    while len(content) <= most_bytes and (part := file.read(_PART_BYTES)):
        content += part
    return bytes(content)


def first_bytes(path: str | os.PathLike[str], count: int) -> bytes:
    """The first bytes of a file, to recognise its format; empty if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return file.read(count)
    except (OSError, ValueError):
        return b""


def read_text(
    path: str | os.PathLike[str], advice: str, most_bytes: int = MOST_TEXT_BYTES, errors: str = "strict"
) -> str:
    """The text of a file, unpacked where gzip packed it: UTF-8, or what its byte order mark names.

    Raises:
        InputError: it cannot be read, is no such text (unless ``errors`` replaces what is not), or is too large.
    """
    content = _unpacked(path, read_bytes(path, advice, most_bytes), most_bytes)
    try:
        text = text_of(content, errors)
    except UnicodeDecodeError as error:
        encoding = error.encoding.upper()
        raise InputError(f"{shortened(path)} is not {encoding} text (byte {error.start:,}); {advice}") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_unpacked(path: str | os.PathLike[str], advice: str, most_bytes: int = MOST_TEXT_BYTES) -> bytes:
    """The content of a file, unpacked where gzip packed it, for documents that are decoded as bytes.

    Raises:
        InputError: it cannot be read, is cut short, or has more than ``most_bytes``.
    """
    return _unpacked(path, read_bytes(path, advice, most_bytes), most_bytes)


def read_profile(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """The content of a profile, unpacked where gzip packed it, whatever it is called.

    Raises:
        InputError: it cannot be read, is empty, is cut short, or unpacks to more than ``most_bytes``.
    """
    data = read_bytes(path, "check its name and permissions")
    if not data:
        raise InputError(f"{path} is empty; record the profile again")
    return _unpacked(path, data, most_bytes)


def _unpacked(path: str | os.PathLike[str], data: bytes, most_bytes: int) -> bytes:
    """The content that gzip packed; other content as it is."""
    if data[:2] != _GZIP:
        return data
    unpacked = bytearray()
    try:
        with gzip.open(io.BytesIO(data)) as stream:
            while len(unpacked) <= most_bytes and (part := stream.read(_PART_BYTES)):
                unpacked += part
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(
            f"{shortened(path)} is cut short or damaged ({len(data):,} bytes of gzip: {error}); copy it again"
        ) from error
    if len(unpacked) > most_bytes:
        raise InputError(f"{shortened(path)} unpacks to more than {most_bytes / (1 << 30):g} GiB; use less of it")
    return bytes(unpacked)


def digest_of(path: str | os.PathLike[str], advice: str = "check its name and permissions") -> str:
    """SHA-256 of a file's content, in hexadecimal.

    Raises:
        InputError: it cannot be read.
    """
    return hashlib.sha256(read_bytes(path, advice)).hexdigest()


def names_file(word: str | os.PathLike[str]) -> bool:
    """Whether a word of a command line is a file's name; one that no file can have, such as a long list, is not."""
    try:
        return Path(word).is_file()
    except (OSError, ValueError):  # too long, or with a null byte
        return False


def names_folder(word: str | os.PathLike[str]) -> bool:
    """Whether a word is a folder's name; one that no folder can have is not."""
    try:
        return Path(word).is_dir()
    except (OSError, ValueError):
        return False


def version(path: Path) -> tuple[int, int]:
    """When a file was changed (ns) and its size (bytes), for the key of a cache: a changed file is read again."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return 0, 0  # whoever reads it says what is wrong
    return status.st_mtime_ns, status.st_size


def reason(error: OSError | ValueError) -> str:
    """Why the system refuses a file, without its name."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "its name holds a null byte" if "null" in str(error) else str(error)
