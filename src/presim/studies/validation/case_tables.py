"""Reads and writes CSV tables of cases and predictions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from presim.errors import InputError
from presim.system.files import FormatError, decode_csv, encode_csv, read_text, write_file


def read_table(path: Path, required: Sequence[str], subject: str) -> list[dict[str, str]]:
    """The rows of a table, without cells beyond the named columns.

    ``subject``: what has the columns, for the message on a missing one, e.g. "a case may have".

    Raises:
        InputError: the file is missing or is not a table, or a required column is missing.
    """
    try:
        return list(decode_csv(read_text(path, "name a table of cases"), required))
    except FormatError as error:
        raise InputError(f"{path} has {error}; docs/reference/validation-tables.md lists what {subject}") from error


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> None:
    """Write a table atomically.

    Raises:
        InputError: it cannot be written.
    """
    write_file(path, encode_csv(columns, rows))
