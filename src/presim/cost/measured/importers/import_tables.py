"""Helpers of the importers: read files as rows, sample rows repeatably, and parse numbers."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from presim.errors import InputError
from presim.system.files import FormatError, decode_csv, read_parquet, read_text

T = TypeVar("T")
Row = dict[str, Any]


def parquet_rows(path: Path, columns: Sequence[str]) -> list[Row]:
    """Rows of a Parquet file; columns it lacks are None.

    Raises:
        InputError: the file cannot be read as Parquet.
    """
    try:
        table, _ = read_parquet(path)
    except FormatError as error:
        raise InputError(f"{path} cannot be read as Parquet: {error}; copy it again") from error
    column_names = set(table.column_names)
    values = [table[column].to_pylist() if column in column_names else [None] * len(table) for column in columns]
    return [dict(zip(columns, row)) for row in zip(*values)]


def csv_rows(path: Path) -> Iterator[Row]:
    """Rows of a CSV file with a header.

    Raises:
        InputError: the file cannot be read as CSV.
    """
    try:
        yield from decode_csv(read_text(path, "check its name and permissions"))
    except FormatError as error:
        raise InputError(f"{path} cannot be read as CSV: {error}; copy it again") from error


def sample(rows: Sequence[T], limit: int, name: str) -> list[T]:
    """At most ``limit`` rows in their order. A table's name determines the sample; every shape is equally likely."""
    if not limit or len(rows) <= limit:
        return list(rows)
    row_indices = np.random.default_rng(zlib.crc32(name.encode())).choice(len(rows), limit, replace=False)
    return [rows[index] for index in sorted(row_indices)]


def number(row: Row, column: str) -> float | None:
    """A column as a number; None if it is missing or not a number."""
    try:
        return float(row[column])
    except (KeyError, TypeError, ValueError):
        return None


def positive_integers(row: Row, *columns: str) -> tuple[int, ...] | None:
    """Columns as positive integers; None if any is not."""
    values = [number(row, column) for column in columns]
    sizes = tuple(int(value) for value in values if value is not None and value >= 1 and value == int(value))
    return sizes if len(sizes) == len(columns) else None
