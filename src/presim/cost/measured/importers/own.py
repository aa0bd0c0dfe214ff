"""Folders of tables written by `presim profile`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from presim.cost.measured import table
from presim.cost.measured.importers.import_tables import sample
from presim.cost.measured.measured_rows import Measurement


def recognises(root: Path) -> bool:
    """Whether a folder has such tables."""
    return root.is_dir() and bool(table.find(root))


def files(root: Path) -> list[Path]:
    """The tables that are read."""
    return table.find(root)


def read(root: Path, limit: int = 0) -> Iterator[Measurement | str]:
    """At most ``limit`` rows of each table; 0: all. An impossible row counts as its reason."""
    for path in files(root):
        read_now = table.read([path])
        yield from sample(read_now.rows, limit, path.name)
        for reason, count in read_now.rejected.items():
            yield from [reason] * count
