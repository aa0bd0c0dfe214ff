"""Attacks by kind: what a person, another tool or an adversary may put into any file whose text presim reads.

An attack finds its place by the text's own tokens (numbers, quoted names, brackets), so that it applies to JSON, TOML,
YAML, CSV and logs alike. `mutate` breaks files as disks and editors do; these mean to be read.
"""

from __future__ import annotations

import dataclasses
import gzip
import random
import re
from collections.abc import Callable

_NUMBER = re.compile(r"(?<![\w.\"-])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w.])")
_QUOTED = re.compile(r'"[^"\n\\]{0,200}"')
_KEY = re.compile(r'(?m)^[ \t]*"?([A-Za-z_][\w-]*)"?[ \t]*[=:]')
_LINE = re.compile(r"(?m)^.+$")
_BOUNDARIES = tuple(sign * (2**power + step) for power in (31, 53, 63, 64) for step in (-1, 0, 1) for sign in (1, -1))
_LONG = (300, 5_000, 70_000)
_DEEP = (101, 1_000, 20_000, 100_000)


@dataclasses.dataclass(frozen=True)
class Attack:
    """A kind of attack. ``change`` returns the text changed, or None where the text has nothing to attack."""

    name: str
    change: Callable[[str, random.Random], str | None]


def _with(text: str, pattern: re.Pattern[str], chance: random.Random, new: Callable[[str], str]) -> str | None:
    """The text with one match of a pattern replaced."""
    matches = list(pattern.finditer(text, 0, 300_000))
    if not matches:
        return None
    match = chance.choice(matches)
    return text[: match.start()] + new(match[0]) + text[match.end() :]


def _in_place_of_a_number(text: str, chance: random.Random, values: tuple[str, ...]) -> str | None:
    return _with(text, _NUMBER, chance, lambda _: chance.choice(values))


def depth(text: str, chance: random.Random) -> str | None:
    """Lists or tables within each other, as a value or as an unknown key, closed or not."""
    levels = chance.choice(_DEEP)
    opening, closing = chance.choice((("[", "]"), ('{"a":', "}"), ("{a=", "}"), ("<g>", "</g>"), ("- ", "")))
    nested = opening * levels + (chance.choice(("0", "")) + closing * levels) * chance.randrange(2)
    if chance.random() < 0.3:
        key = f'"unknown": {nested}, ' if "{" in text else f"unknown = {nested}\n"
        return text.replace("{", "{" + key, 1) if "{" in text else key + text
    return _with(text, chance.choice((_NUMBER, _QUOTED)), chance, lambda _: nested)


def digits(text: str, chance: random.Random) -> str | None:
    """A number of many digits."""
    count = chance.choice((19, 20, 21, 26, 40, 400, 5_000))
    many = chance.choice("123456789") + "".join(chance.choices("0123456789", k=count - 1))
    forms = (many, f"-{many}", f"0.{many}", f"{many}.5", f"1e{many[:4]}", f"1e-{many[:6]}", f"0x{many}")
    return _in_place_of_a_number(text, chance, forms)


def boundaries(text: str, chance: random.Random) -> str | None:
    """An integer at the edge of 31, 53, 63 or 64 bits."""
    return _in_place_of_a_number(text, chance, tuple(map(str, _BOUNDARIES)))


def non_finite(text: str, chance: random.Random) -> str | None:
    """A number that is none, or too large or too small for arithmetic."""
    values = (
        "NaN",
        "Infinity",
        "-Infinity",
        "nan",
        "inf",
        "-inf",
        ".inf",
        "1e400",
        "-1e400",
        "1e308",
        "5e-324",
        "1e-300",
    )
    return _in_place_of_a_number(text, chance, values)


def signs(text: str, chance: random.Random) -> str | None:
    """A size, count or time that is zero or negative."""
    negated = _with(text, _NUMBER, chance, lambda number: number[1:] if number[0] == "-" else f"-{number}")
    return chance.choice((negated, _in_place_of_a_number(text, chance, ("0", "-1", "-0.0", "0.0", "-1e18"))))


def types(text: str, chance: random.Random) -> str | None:
    """A truth value, a fraction or a text where a whole number belongs."""
    literals = ("true", "false", "null", '"8"', "[1]", "{}", "1000.9", "0.5", '""', "[]", '"true"', "1e3", "1.0")
    return _in_place_of_a_number(text, chance, literals)


def names(text: str, chance: random.Random) -> str | None:
    """A name or text that is long, empty, or made of characters that no name has."""
    length = chance.choice(_LONG)
    values = (
        "a" * length,
        "../" * length,
        "",
        "a\\u0000b",
        "\\ud800",
        "/dev/zero",
        "\u202e\u0007",
        "-",
        "{0}",
        "%s",
        "a/b",
        ".",
    )
    return _with(text, _QUOTED, chance, lambda _: f'"{chance.choice(values)}"')


def keys(text: str, chance: random.Random) -> str | None:
    """A key of thousands of parts or characters, one that is there twice, or ten thousand keys."""
    match = chance.choice(list(_KEY.finditer(text, 0, 300_000)) or [None])
    if match is None:
        return None
    key = match[1]
    parts = ".".join([key] * chance.choice((50, 5_000, 50_000)))
    others = (parts, key * chance.choice(_LONG), f"{key}\\u0000", "", "__proto__")
    if chance.random() < 0.3:
        line = text[match.start() : (text.find("\n", match.end()) + 1) or len(text)]
        return text[: match.start()] + line + text[match.start() :]
    return text[: match.start(1)] + chance.choice(others) + text[match.end(1) :]


def counts(text: str, chance: random.Random) -> str | None:
    """A line, a number or a text that stands there thousands of times."""
    pattern = chance.choice((_NUMBER, _QUOTED, _LINE))
    separator = "\n" if pattern is _LINE else ","
    return _with(text, pattern, chance, lambda part: separator.join([part] * chance.choice((1_000, 20_000))))


def unclosed(text: str, chance: random.Random) -> str | None:
    """A quote or bracket that is opened and not closed, or the end missing behind one."""
    place = chance.randrange(len(text) + 1)
    opened = chance.choice(('"', "'", '"""', "[", "{", "<!--", "<![CDATA[", "#", "\\"))
    if chance.random() < 0.3:
        return text[:place]
    return text[:place] + opened + "x" * chance.choice((0, 0, 131_073, 2_000_000)) + text[place:]


def nulls(text: str, chance: random.Random) -> str | None:
    """Null bytes and control characters, within a name or between tokens."""
    place = chance.randrange(len(text) + 1)
    return (
        text[:place]
        + chance.choice(("\0", "\0" * 1000, "\x1b[2J", "\r", "\x0b", "\ufeff", "\u2028", "\x85"))
        + text[place:]
    )


ATTACKS = tuple(
    Attack(change.__name__.replace("_", " "), change)
    for change in (depth, digits, boundaries, non_finite, signs, types, names, keys, counts, unclosed, nulls)
)
_PACKED = b"\x1f\x8b"


def attacked(data: bytes, attack: Attack, seed: str) -> bytes | None:
    """The content of a file under an attack, as the seed decides; None for a file without text."""
    is_packed = data[:2] == _PACKED
    content = gzip.decompress(data) if is_packed else data
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    changed = attack.change(text, random.Random(seed))
    if changed is None:
        return None
    encoded = changed.encode("utf-8", "surrogatepass")
    return gzip.compress(encoded, 1, mtime=0) if is_packed else encoded
