"""Limits on what a file may hold. They are far above what programs write, and below what exhausts a reader."""

from __future__ import annotations

import math
from typing import Any

MOST_DEPTH = 100  # levels of nesting; profiles and configurations have up to 10. Python recurses up to 1,000
MOST_INTEGER = (1 << 63) - 1  # what presim's own files hold: columns and counters have 64 bits
MOST_FLOPS = 10**30 - 1  # of a result: its sums are not columns, and a step of days has more than 64 bits
MOST_UNSIGNED = (1 << 64) - 1  # what other tools write: addresses and hashes without a sign
MOST_DIGITS = 20  # of an integer: those of MOST_UNSIGNED
MOST_BYTES = 8 << 30  # of a file when it is unpacked: a gzip of a few MiB may be said to hold terabytes
MOST_TEXT_BYTES = 4 << 30  # of a log or a table as text; the largest public request trace has 1.2 GB
MOST_TOML_BYTES = 16 << 20  # fitted clusters have up to 0.5 MB; tomllib reads about 1 MB/s
MOST_YAML_BYTES = 256 << 10  # PyYAML reads about 0.1 MB/s
MOST_VALUES = 1_000_000  # of a TOML or YAML document, with YAML's aliases expanded
MOST_FIELD_CHARACTERS = 1 << 20  # of one cell of a CSV file
PYTHON_ADVICE = "; use sys."  # where CPython's sentence on long integers goes on about its own settings
MOST_CELLS = 2_000_000_000  # of a Parquet file; a rank's step of a million entries has 3e7
_SHOWN = 200  # characters of a name or value in a sentence


class FormatError(ValueError):
    """The content is not of its format, or beyond a limit. The message says what and where, in one line."""


def shortened(text: object) -> str:
    """A name or value as a sentence shows it: in one line, of at most 200 characters.

    >>> shortened("12" * 5000)
    '121212121212121212121212121212…12121212121212121212 (10,000 characters)'
    """
    words = str(text)
    words = words if words.isprintable() else repr(words)[1:-1]
    if len(words) <= _SHOWN:
        return words
    return f"{words[:30]}…{words[-20:]} ({len(words):,} characters)"


def check_values(document: Any, most_integer: int = MOST_INTEGER) -> None:
    """Check a decoded document: its depth, its number of values, and that each number is finite and of 64 bits.

    Raises:
        FormatError: it is beyond a limit.
    """
    pending: list[tuple[Any, int, str]] = [(document, 0, "")]
    count = 0
    while pending:
        value, depth, key = pending.pop()
        count += 1
        if depth > MOST_DEPTH:
            raise FormatError(f"it is nested deeper than {MOST_DEPTH} levels")
        if count > MOST_VALUES:
            raise FormatError(f"it holds more than {MOST_VALUES:,} values")
        if isinstance(value, dict):
            pending += [(part, depth + 1, str(name)) for name, part in value.items()]
        elif isinstance(value, list):
            pending += [(part, depth + 1, key) for part in value]
        elif isinstance(value, float) and not math.isfinite(value):
            raise FormatError(f"{shortened(key)} is {value}, which is no quantity")
        elif isinstance(value, int) and not -most_integer - 1 <= value <= most_integer:
            raise FormatError(f"{shortened(key)} is a number beyond {most_integer:,}")
