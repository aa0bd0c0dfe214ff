"""Reads and writes CSV tables with a header."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence

from presim.system.files.file_limits import MOST_FIELD_CHARACTERS, FormatError


def decode_csv(text: str, columns: Sequence[str] | None = None) -> Iterator[dict[str, str]]:
    """The rows of a table; absent cells are empty, cells beyond the header are dropped.

    Cells end with commas; with semicolons or tabs where the header has no comma. Spaces around names are not theirs.
    ``columns``: names that the header must have.

    Raises:
        FormatError: a quote is not closed, a cell is too long, or a column is missing or there twice. The message
            names the line.
    """
    csv.field_size_limit(MOST_FIELD_CHARACTERS)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text), strict=True)
    header: list[str] | None = None
    try:
        for cells in reader:
            if not cells:
                continue
            if header is None:
                header = [name.strip() for name in cells]
                _check_columns(header, columns or ())
            else:
                yield dict(zip(header, cells + [""] * (len(header) - len(cells))))
    except csv.Error as error:
        why = "a quote is not closed" if "end of data" in str(error) else str(error)
        raise FormatError(f"line {reader.line_num:,}: {why}") from error
    if header is None:
        _check_columns([], columns or ())


def _delimiter(text: str) -> str:
    """What ends a cell, by the first line with text: spreadsheets use semicolons where decimals have commas."""
    head = text[:MOST_FIELD_CHARACTERS].lstrip().partition("\n")[0]
    return next((mark for mark in ",;\t" if mark in head), ",")


def _check_columns(header: Sequence[str], columns: Sequence[str]) -> None:
    if repeated := [name for name in columns if header.count(name) > 1]:
        raise FormatError(f"{header.count(repeated[0])} columns {repeated[0]!r}")
    if missing := [name for name in columns if name not in header]:
        raise FormatError(f"no column {missing[0]!r}")


def encode_csv(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> bytes:
    """A table with a header; absent cells are empty."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def encode_csv_rows(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """A table of cells in the order of its header, whose names may repeat."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue().encode()
