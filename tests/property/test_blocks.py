"""Blocks of memory: matched hand-outs, returns and tags say the same as running sums."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from presim.analysis.memory.blocks import allocated_bytes, find_blocks
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Category, Kind, Trace


@st.composite
def histories(draw: st.DrawFn) -> Trace:
    """Blocks that come and go at a few addresses, and change what they hold."""
    build = TraceBuilder()
    live: dict[int, int] = {}
    for _ in range(draw(st.integers(0, 40))):
        address = draw(st.integers(1, 4)) * 4096
        if address not in live:
            live[address] = draw(st.integers(1, 9)) * 512
            build.alloc(address, live[address], category=draw(st.sampled_from(Category)))
        elif draw(st.booleans()):
            build.free(address, live.pop(address))
        else:
            build.retag(address, draw(st.sampled_from(Category)))
    return build.trace()


@given(histories())
def test_live_blocks_are_what_is_allocated(trace: Trace) -> None:
    """At every entry, although addresses are used again and again."""
    blocks, allocated = find_blocks(trace), allocated_bytes(trace)
    for entry in range(len(trace)):
        assert blocks.bytes[blocks.live_at(entry)].sum() == allocated[entry]


@given(histories())
def test_categories_change_as_their_blocks_do(trace: Trace) -> None:
    """Summed changes are what the tags of the live blocks say, at every entry."""
    blocks = find_blocks(trace)
    entry, category, change = blocks.changes(trace)
    for now in range(len(trace)):
        live = blocks.live_at(now)
        held = np.bincount(blocks.categories_at(now)[live], weights=blocks.bytes[live], minlength=len(Category))
        so_far = entry <= now
        summed = np.bincount(category[so_far], weights=change[so_far], minlength=len(Category))
        assert summed.tolist() == held.tolist()


@given(histories())
def test_every_return_finds_its_block(trace: Trace) -> None:
    """Each block ends at the first return of its address after it was handed out."""
    blocks = find_blocks(trace)
    returns = np.flatnonzero(trace.mask(Kind.FREE))
    assert sorted(blocks.free[blocks.free < len(trace)].tolist()) == returns.tolist()
    assert np.all(blocks.alloc < blocks.free)
