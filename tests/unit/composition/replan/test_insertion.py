"""Inserted entries stand before the entries that were named, in the order of the insertions."""

from __future__ import annotations

import numpy as np

from presim.composition.replan.insertion import Insertion, insert
from presim.trace.builder import TraceBuilder


def test_entries_and_their_new_positions() -> None:
    build = TraceBuilder()
    for stream in range(4):
        build.record(stream=stream)
    trace = build.trace()
    taken = {name: column[:2] for name, column in trace.columns.items()}
    inserted, positions = insert(trace, [Insertion(3, taken), Insertion(1, taken)], np.array([9, 8, 7, 6]))
    assert inserted.columns["stream"].tolist() == [0, 0, 1, 1, 2, 0, 1, 3]
    assert inserted.columns["object"].tolist() == [9, 1, 2, 8, 7, 1, 2, 6]
    assert positions.tolist() == [0, 3, 4, 7, 8]
    assert inserted.columns["stream"].dtype == trace.columns["stream"].dtype
