"""The allocator's replay over columns does what the one over objects does."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from presim.composition import allocator_loop
from presim.composition.allocator import replay
from presim.trace.schema import Kind

SIZES = (512, 4096, 1 << 20, (1 << 20) + 512, 3 << 20, 9 << 20, 10 << 20, 33 << 20)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 120))
def test_both_give_the_same_blocks_and_segments(seed: int, count: int) -> None:
    drawn = random.Random(seed)
    rows: list[tuple[int, int, int, int]] = []
    live: list[tuple[int, int]] = []
    for slot in range(count):
        while live and drawn.random() < 0.4:
            freed, size = live.pop(drawn.randrange(len(live)))
            rows.append((int(Kind.FREE), freed, size, 0))
        size = drawn.choice(SIZES)
        rows.append((int(Kind.ALLOC), slot, size, drawn.choice((0, 0, 2))))
        rows.append((int(Kind.RETAG), slot, 1, 0))
        live.append((slot, size))
    kinds, slots, sizes, streams = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    columns = allocator_loop.columns(kinds, slots, sizes, streams, count, count)
    taken = allocator_loop.carry_out(columns, int(Kind.ALLOC), int(Kind.FREE))
    addresses, held, segments = replay(kinds.tolist(), slots.tolist(), sizes.tolist(), streams.tolist())
    assert columns.addresses.tolist() == addresses.tolist()
    assert columns.block_bytes.tolist() == held.tolist()
    assert [tuple(one) for one in columns.new_segments[:taken].tolist()] == segments
