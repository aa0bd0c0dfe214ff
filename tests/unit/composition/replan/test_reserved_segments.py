"""Blocks that fit no segment get segments."""

from __future__ import annotations

from presim.composition.replan.insertion import insert
from presim.composition.replan.reserved_segments import missing_segments
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Kind, Trace
from support.replanned import faults

MIB = 1 << 20


def growing(blocks: int, *, segment_bytes: int) -> Trace:
    build = TraceBuilder()
    if segment_bytes:
        build.segment(0, segment_bytes)
    for number in range(blocks):
        build.alloc(number * 8 * MIB, 8 * MIB)
    build.free(0, 8 * MIB)
    return build.trace()


def test_as_much_is_reserved_as_is_allocated() -> None:
    trace = growing(9, segment_bytes=20 * MIB)
    segments = missing_segments(trace, 1 << 40)
    extended, _ = insert(trace, segments, trace.columns["object"].copy())
    assert not faults(extended)
    assert extended.columns["value"][extended.mask(Kind.SEGMENT_ALLOC)].sum() == 80 * MIB


def test_traces_whose_blocks_fit_stay_as_they_are() -> None:
    """And those that know no segments."""
    assert missing_segments(growing(2, segment_bytes=20 * MIB), 1 << 40) == []
    assert missing_segments(growing(9, segment_bytes=0), 1 << 40) == []
