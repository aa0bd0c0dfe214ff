"""The allocator's replay over columns does what the one over objects does."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from presim.composition import allocator, allocator_loop
from presim.composition.allocator import replay
from presim.trace.schema import Kind

SIZES = (512, 4096, 1 << 20, (1 << 20) + 512, 3 << 20, 9 << 20, 10 << 20, 33 << 20)


def draw_entries(seed: int, count: int) -> list[list[int]]:
    """Kinds, slots, sizes and streams of random requests, ``count`` of them allocations."""
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
    return [list(column) for column in zip(*rows, strict=True)]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 120))
def test_both_give_the_same_blocks_and_segments(seed: int, count: int) -> None:
    entries = draw_entries(seed, count)
    kinds, slots, sizes, streams = map(np.array, entries)
    requests = allocator_loop.requests(kinds, slots, sizes, streams, int(Kind.ALLOC), int(Kind.FREE))
    columns = allocator_loop.blocks(requests, count, count)
    num_segments = allocator_loop.carry_out(requests, columns)
    addresses, block_bytes, segments = replay(*entries)
    assert columns.addresses.tolist() == addresses.tolist()
    assert columns.block_bytes.tolist() == block_bytes.tolist()
    assert [tuple(row) for row in columns.new_segments.reshape(-1, 3)[:num_segments].tolist()] == segments


def test_machine_code_gives_the_same_blocks_and_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator._ReplayedEntries, "entries", allocator._MANY)
    entries = draw_entries(7, 2000)
    addresses, block_bytes, segments = allocator.replay_columns(*map(np.array, entries))
    expected_addresses, expected_bytes, expected_segments = replay(*entries)
    assert np.array_equal(addresses, expected_addresses)
    assert np.array_equal(block_bytes, expected_bytes)
    assert segments == expected_segments
