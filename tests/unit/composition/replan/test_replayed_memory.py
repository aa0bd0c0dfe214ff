"""The allocator is replayed for blocks that live from one entry to a later one, and for no others."""

from __future__ import annotations

import numpy as np
import pytest

from presim.composition.replan.replayed_memory import with_replayed_memory
from presim.errors import InputError
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Category, Kind, Trace


def trace_of(*calls: str) -> Trace:
    """Entries of one block."""
    build = TraceBuilder()
    for call in calls:
        if call == "retag":
            build.retag(7, Category.GRADIENT)
        else:
            getattr(build, call)(7, 4096)
    return build.trace()


def test_blocks_get_addresses_in_segments() -> None:
    trace = trace_of("alloc", "retag", "free")
    replayed, positions = with_replayed_memory(trace, np.zeros(len(trace), np.int64))
    segments = replayed.mask(Kind.SEGMENT_ALLOC)
    assert replayed.columns["value"][segments].tolist() == [2 << 20]
    address = int(replayed.columns["object"][segments][0])
    assert replayed.columns["object"][~segments].tolist() == [address] * 3
    assert positions.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("calls", [("alloc", "free", "retag"), ("retag", "alloc", "free"), ("free",)])
def test_a_block_that_is_not_there_is_refused(calls: tuple[str, ...]) -> None:
    trace = trace_of(*calls)
    with pytest.raises(InputError, match="is of a block that is not there or freed too early"):
        with_replayed_memory(trace, np.zeros(len(trace), np.int64))
