"""Reads and writes CSV tables of cases and predictions."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from presim.errors import InputError
from presim.files import write_file


def read_table(path: Path, required: Sequence[str], what: str) -> list[dict[str, str]]:
    """The rows of a table, without cells beyond the named columns.

    ``what``: end of the message on a missing column, e.g. "a case may have".

    Raises:
        InputError: the file is missing or is not a table, or a required column is missing.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, restval="")
            columns = reader.fieldnames or ()
            rows = [{name: value for name, value in row.items() if name is not None} for row in reader]
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); name a table of cases") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as a CSV table: {error}") from error
    if missing := [name for name in required if name not in columns]:
        raise InputError(f"{path} has no column {missing[0]!r}; docs/guide/validate.md lists what {what}")
    return rows


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> None:
    """Write a table atomically.

    Raises:
        InputError: it cannot be written.
    """
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_file(path, text.getvalue().encode())
