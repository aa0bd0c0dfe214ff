"""Reads TOML."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from presim.system.files.file_limits import MOST_DEPTH, MOST_TOML_BYTES, PYTHON_ADVICE, FormatError, check_values

# Strings and comments, in which brackets and dots mean nothing; then what nests.
_TOKENS = re.compile(
    r'"""(?:\\.|[^\\])*?"""|' r"'''.*?'''|" r'"(?:\\.|[^"\\\n])*"|' r"'[^'\n]*'|#[^\n]*|(?P<mark>[\[{\]}.=,\n])",
    re.DOTALL,
)


def decode_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text; its numbers are finite and have 64 bits, as TOML says.

    Raises:
        FormatError: it is no TOML, too long, nested too deep, or a number is beyond its limit.
    """
    if len(text) > MOST_TOML_BYTES:
        raise FormatError(f"{len(text):,} characters, more than {MOST_TOML_BYTES:,}")
    _check_nesting(text)
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a ValueError: also an integer of more than 4,300 digits
        raise FormatError(str(error).partition("\n")[0].partition(PYTHON_ADVICE)[0]) from error
    check_values(tables)
    return tables


def _check_nesting(text: str) -> None:
    """tomllib recurses once per bracket, and looks at all parts of a key before each of its parts."""
    depth, parts = 0, 1
    for token in _TOKENS.finditer(text):
        mark = token["mark"]
        if mark is None:
            continue
        if mark == ".":
            parts += 1
        else:
            parts = 1
            depth = max(depth + (mark in "[{") - (mark in "]}"), 0)
        if max(depth, parts) > MOST_DEPTH:
            line = text.count("\n", 0, token.start()) + 1
            excess = f"a key of more than {MOST_DEPTH} parts" if parts > depth else f"more than {MOST_DEPTH} levels"
            raise FormatError(f"{excess} (at line {line})")


__all__ = ["decode_toml"]
