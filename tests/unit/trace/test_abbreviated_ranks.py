"""Lists of ranks that PyTorch's profiler shortened."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from presim.trace.abbreviated_ranks import read_ranks


@given(first=st.integers(0, 100), step=st.integers(1, 64), size=st.integers(31, 2000))
def test_ranks_of_one_distance_come_back(first: int, step: int, size: int) -> None:
    """29 ranks, the last one and the size of the group tell all of them."""
    ranks = [first + step * index for index in range(size)]
    text = f"[{', '.join(map(str, ranks[:29]))}, ..., {ranks[-1]}]"
    assert list(read_ranks(text, size)) == ranks
    assert read_ranks(text, size + 1) == ()
    assert read_ranks(text, 0) == ()


def test_ranks_without_one_distance_are_not_guessed() -> None:
    assert read_ranks("[0, 1, 2, 3, 8, 9, ..., 127]", 64) == ()
    assert read_ranks("[5, 3, 1]", 3) == (5, 3, 1)
