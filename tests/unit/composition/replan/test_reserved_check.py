"""What the allocator, carried out anew, would reserve for captured blocks is compared with what it did reserve."""

from __future__ import annotations

import pytest

from presim.composition.replan.reserved_check import reserved_bytes, sentences_on_reserved
from presim.trace.builder import TraceBuilder

_BLOCK, _SEGMENT = 16 << 20, 16 << 20


@pytest.mark.parametrize(("late", "sentences"), [(False, 0), (True, 1)])
def test_blocks_that_return_late_are_told(late: bool, sentences: int) -> None:
    """A block that another stream uses is not handed out again, and the next one takes a segment."""
    build = TraceBuilder()
    for number in range(8):
        address = (1 << 40) + (number << 30 if late else 0)
        if late or number == 0:
            build.segment(address, _SEGMENT)
        build.alloc(address, _BLOCK)
        build.free(address, _BLOCK)
    build.step()
    trace = build.trace()
    told = sentences_on_reserved([trace])
    assert reserved_bytes(trace) == (8 if late else 1) * _SEGMENT
    assert len(told) == sentences
    assert all("16.0 MiB" in sentence and "0.12 GiB" in sentence for sentence in told)
