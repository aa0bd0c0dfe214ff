"""Which ranks of a large job run for comparison."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from presim.capture.ranks.rank_sample import (
    axis_sample,
    corner_sample,
    diagonal_sample,
    first_sample,
    gap_sample,
    is_line,
)

TP = tuple(range(8))
DP = tuple(range(0, 128, 8))


def test_the_first_sample_is_the_last_rank() -> None:
    assert first_sample(1024) == [1023]


def test_a_single_group_of_all_is_a_line_and_a_mesh_is_not() -> None:
    assert is_line([], 128)
    assert is_line([tuple(range(128))], 128)
    assert not is_line([TP, DP], 128)


@given(st.integers(1, 20))
def test_small_worlds_have_no_more_samples_than_ranks(world: int) -> None:
    found = first_sample(world)
    assert len(set(found)) == len(found)
    assert all(0 < rank < world for rank in found)


def test_each_axis_has_its_second_last_and_middle_rank() -> None:
    assert set(axis_sample([TP, DP], 128)) == {1, 7, 4, 8, 120, 64}


def test_the_first_ranks_lie_on_different_axes() -> None:
    assert set(axis_sample([TP, DP], 128)[:2]) == {1, 8}


def test_groups_that_are_not_an_axis_are_sampled_too() -> None:
    """Megatron's embedding group has only the first and the last stage."""
    assert {5, 11} <= set(axis_sample([TP, (0, 5, 11)], 128))


def test_the_corners_of_the_grid_are_sampled() -> None:
    assert set(corner_sample([TP, DP], 128)) == {7, 120, 127}


@given(st.integers(1, 8), st.integers(1, 40), st.integers(8, 20))
def test_the_diagonal_has_every_index_of_short_axes_and_both_ends_of_long_ones(
    node: int, nodes: int, count: int
) -> None:
    ranks = [0, *diagonal_sample([tuple(range(node))], node * nodes, count)]
    assert len(ranks) <= count
    assert {rank % node for rank in ranks} == set(range(node))
    assert {rank // node for rank in ranks} >= ({0, nodes - 1} if nodes > count else set(range(nodes)))


@given(st.integers(0, 1000), st.integers(1, 1000), st.integers(1, 9))
def test_samples_of_a_gap_lie_inside_and_differ(before: int, distance: int, samples: int) -> None:
    after = before + distance
    found = gap_sample(before, after, samples)
    assert len(found) == min(samples, distance - 1)
    assert found == sorted(set(found))
    assert all(before < number < after for number in found)
