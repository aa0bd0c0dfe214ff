"""Group sizes in signatures."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from presim.trace.group_sizes import rounded, sizes_of

SIZES = st.lists(st.integers(0, 1 << 16), min_size=1, max_size=64).filter(any)


@given(SIZES)
def test_sizes_follow_from_ends(sizes: list[int]) -> None:
    ends = [sum(sizes[: place + 1]) for place in range(len(sizes))]
    assert sizes_of(ends, sum(sizes)) == tuple(sizes)
    assert sizes_of(ends, sum(sizes) - 1) is None


@given(SIZES)
def test_rounding_is_within_five_percent_or_half_a_row(sizes: list[int]) -> None:
    """Largest first, without the empty ones."""
    grid = rounded(sizes)
    exact = sorted((size for size in sizes if size), reverse=True)
    if max(sizes) <= 1.1 * min(sizes):
        assert grid == ()
    else:
        assert all(abs(on - size) <= 0.05 * size + 0.5 for on, size in zip(grid, exact, strict=True))


@given(SIZES)
def test_sizes_have_eight_values_per_octave(sizes: list[int]) -> None:
    assert len(set(rounded(sizes))) <= 8 * 17


def test_groups_with_an_empty_one_are_not_equal() -> None:
    assert rounded((4, 4, 0)) == (4, 4)
