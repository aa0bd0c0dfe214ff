"""Checks the invariants of a trace before anything indexes with its columns."""

from __future__ import annotations

import numpy as np

from presim.errors import InputError
from presim.trace.schema import Kind, Trace
from presim.trace.signatures import Collective


def check(trace: Trace) -> None:
    """Raise `InputError` where a column points outside its table, or an entry contradicts its signature.

    Compiled code uses these columns as indices without bounds checks, so every trace that is read must pass.
    """
    columns = {name: column.astype(np.int64) for name, column in trace.columns.items()}
    kinds = columns["kind"]
    if len(kinds) and int(kinds.max()) > max(Kind):
        raise InputError(f"the trace has an entry of unknown kind {int(kinds.max())}; capture it again")
    tables = {name: getattr(trace, f"{name}s") for name in ("signature", "scope", "operator", "site")}
    for name, table in tables.items():
        column = columns[name]
        if len(column) and (int(column.min()) < -1 or int(column.max()) >= len(table)):
            raise InputError(
                f"the trace's column {name!r} points outside its table of {len(table)} values; capture it again"
            )
    if len(kinds) and int(columns["host_ns"].min()) < 0:
        raise InputError("the trace has an entry with negative host time; capture it again")
    is_collective = np.array([isinstance(signature, Collective) for signature in trace.signatures] + [False])
    expected = kinds == Kind.COLLECTIVE
    if not np.array_equal(is_collective[columns["signature"]], expected):
        raise InputError("the trace has collectives whose signature is of another family; capture it again")
    if np.any((kinds == Kind.WORK) & (columns["signature"] < 0)):
        raise InputError("the trace has device work without a signature; capture it again")
