"""Mutations of a file: truncation, flipped bytes, wrong values, missing or repeated lines, other encodings."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

Mutation = Callable[[bytes, random.Random], bytes]

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_WORD = re.compile(rb"[A-Za-z_][A-Za-z_0-9.-]{2,}")
_VALUES = (
    b"-1", b"0", b"1", b"1.5", b"-0.0", b"1e308", b"1e-308", b"nan", b"inf", b"99999999999999999999", b"true", b"null",
    b'""', b'"x"', b"[]", b"{}", b"2147483648", b"9223372036854775808", b"0x10", b"\xff\xfe", b"",
)  # fmt: skip
_STRUCTURE = b'{}[]",:=\n\t#<>/'


def cut(data: bytes, chance: random.Random) -> bytes:
    """The end is missing, as after a full disk."""
    return data[: chance.randrange(len(data))] if data else data


def flip(data: bytes, chance: random.Random) -> bytes:
    """A few bytes are others."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        if changed:
            changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def drop(data: bytes, chance: random.Random) -> bytes:
    """A stretch is missing."""
    start = chance.randrange(len(data) + 1)
    return data[:start] + data[start + chance.randint(1, 40) :]


def repeat(data: bytes, chance: random.Random) -> bytes:
    """A stretch comes twice."""
    start = chance.randrange(len(data) + 1)
    end = start + chance.randint(1, 60)
    return data[:end] + data[start:end] + data[end:]


def insert(data: bytes, chance: random.Random) -> bytes:
    """A character of the format's own stands where none belongs."""
    start = chance.randrange(len(data) + 1)
    at = chance.randrange(len(_STRUCTURE))
    return data[:start] + _STRUCTURE[at : at + 1] + data[start:]


def change_number(data: bytes, chance: random.Random) -> bytes:
    """A number is another value: negative, huge, not a number, or of another type."""
    return _replace(data, _NUMBER, chance)


def change_word(data: bytes, chance: random.Random) -> bytes:
    """A name or a text is another value."""
    return _replace(data, _WORD, chance)


def _replace(data: bytes, pattern: re.Pattern[bytes], chance: random.Random) -> bytes:
    found = list(pattern.finditer(data[:2_000_000]))
    if not found:
        return flip(data, chance)
    match = chance.choice(found)
    return data[: match.start()] + chance.choice(_VALUES) + data[match.end() :]


def drop_line(data: bytes, chance: random.Random) -> bytes:
    """A line is missing: a column's name, a key, a row."""
    lines = data.split(b"\n")
    del lines[chance.randrange(len(lines))]
    return b"\n".join(lines)


def swap_lines(data: bytes, chance: random.Random) -> bytes:
    """Two lines have changed places."""
    lines = data.split(b"\n")
    first, second = (chance.randrange(len(lines)) for _ in range(2))
    lines[first], lines[second] = lines[second], lines[first]
    return b"\n".join(lines)


def repeat_line(data: bytes, chance: random.Random) -> bytes:
    """A line comes twice."""
    lines = data.split(b"\n")
    at = chance.randrange(len(lines))
    return b"\n".join([*lines[: at + 1], *lines[at:]])


def empty(data: bytes, chance: random.Random) -> bytes:
    """There is nothing, only white space, or something else altogether."""
    return chance.choice([b"", b"\n", b"   ", b"\0" * 64, b"null", b"[]", b"{}", b"0", b"\x80\x04K\x01.", b"a,b\n1\n"])


def reencode(data: bytes, chance: random.Random) -> bytes:
    """As another system's editor saves it: a byte-order mark, UTF-16, or other line ends."""
    how = chance.randrange(3)
    if how == 0:
        return b"\xef\xbb\xbf" + data
    if how == 1:
        return data.decode("utf-8", "replace").encode("utf-16")
    return data.replace(b"\n", b"\r\n")


MUTATIONS: tuple[Mutation, ...] = (
    cut, flip, drop, repeat, insert, change_number, change_number, change_number, change_word, change_word, drop_line,
    swap_lines, repeat_line, empty, reencode,
)  # fmt: skip


def mutate(data: bytes, seed: str) -> tuple[bytes, str]:
    """The file changed as the seed decides, and the names of the changes."""
    chance = random.Random(seed)
    names = []
    for _ in range(chance.choice([1, 1, 1, 2])):
        mutation = chance.choice(MUTATIONS)
        data = mutation(data, chance)
        names.append(mutation.__name__)
    return data, "+".join(names)
