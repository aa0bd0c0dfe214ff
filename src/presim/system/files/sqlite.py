"""Tables of SQLite databases that other programs wrote, read-only."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from presim.errors import InputError

_MAGIC = b"SQLite format 3\0"


def is_sqlite(path: Path) -> bool:
    """Whether a file is a SQLite database, by its first bytes."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def table_names(path: Path) -> set[str]:
    """Names of tables and views.

    Raises:
        InputError: the file is no database, or damaged.
    """
    with _connection(path) as connection:
        return {
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        }


def read_table(path: Path, table: str, columns: Sequence[str]) -> list[Mapping[str, Any]]:
    """Rows of a table or view with these columns, in the order of the table; columns that it lacks are None.

    Raises:
        InputError: there is no such table, or the file is damaged.
    """
    with _connection(path) as connection:
        present = {row[1] for row in connection.execute(f"PRAGMA table_info({_quoted(table)})")}
        if not present:
            raise InputError(f"{path} has no table {table}; export it again")
        selected = ", ".join(_quoted(name) if name in present else f"NULL AS {_quoted(name)}" for name in columns)
        cursor = connection.execute(f"SELECT {selected} FROM {_quoted(table)}")
        return [dict(zip(columns, row, strict=True)) for row in cursor]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextlib.contextmanager
def _connection(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        connection = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1", uri=True)
        try:
            yield connection
        finally:
            connection.close()
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no readable SQLite database ({error}); export it again") from error
