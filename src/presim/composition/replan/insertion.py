"""Entries that are inserted into a trace."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError
from presim.trace.schema import COLUMNS, Trace
from presim.units import GIB

Ints = NDArray[np.int64]
_BYTES_OF_ENTRY = 200  # of presim replan at its peak: 170 to 240, measured on jobs of 2.8 and 0.7 million entries


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


def check_memory(traces: Sequence[Trace], factor: float) -> None:
    """Raise `InputError` if traces of so many times the entries do not fit this machine's memory."""
    memory_bytes = _machine_bytes()
    num_entries = sum(map(len, traces)) * factor
    if num_entries * _BYTES_OF_ENTRY > memory_bytes:
        raise InputError(
            f"the job would have about {num_entries:,.0f} entries, {factor:,.0f} times those captured, which take "
            f"{num_entries * _BYTES_OF_ENTRY / GIB:,.0f} GiB of memory; this machine has {memory_bytes / GIB:,.0f}: "
            "ask for fewer layers or micro-batches"
        )


def _machine_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
