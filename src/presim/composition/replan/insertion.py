"""Entries that are inserted into a trace."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from presim.trace.schema import COLUMNS, Trace

Ints = NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Insertion:
    """Columns of entries to insert before one entry of the original trace."""

    entry: int
    columns: dict[str, NDArray[np.generic]]


def insert(trace: Trace, insertions: Sequence[Insertion], objects: Ints) -> tuple[Trace, Ints]:
    """The trace with all insertions, and with the objects that its own entries name now [len(trace)].

    Also returns how many entries precede each of its own ones now, and how many there are [len(trace) + 1].
    """
    renamed_columns = {**trace.columns, "object": objects}
    pieces: list[dict[str, NDArray[np.generic]]] = []
    begin = 0
    inserted = np.zeros(len(trace) + 1, np.int64)
    for insertion in sorted(insertions, key=lambda insertion: insertion.entry):
        pieces += [
            {name: column[begin : insertion.entry] for name, column in renamed_columns.items()},
            insertion.columns,
        ]
        inserted[insertion.entry :] += len(insertion.columns["kind"])
        begin = insertion.entry
    pieces.append({name: column[begin:] for name, column in renamed_columns.items()})
    columns: dict[str, NDArray[np.generic]] = {
        name: np.concatenate([piece[name] for piece in pieces]).astype(dtype) for name, dtype in COLUMNS.items()
    }
    return dataclasses.replace(trace, columns=columns), np.arange(len(trace) + 1) + inserted
