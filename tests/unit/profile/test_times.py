"""Several calls with one signature make one row, which says how far they are apart, or none."""

from __future__ import annotations

import pytest

from presim.profile.times import row


def test_of_one_call_the_median_and_half_the_distance_of_the_quartiles() -> None:
    assert row([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]]) == {"duration_ns": 4e6, "spread": 0.5, "samples": 7}


def test_of_two_calls_the_middle_and_what_they_differ_by() -> None:
    assert row([[0.8] * 7, [1.2] * 9]) == {"duration_ns": 1e6, "spread": pytest.approx(0.2), "samples": 16}


def test_calls_that_have_little_in_common_are_no_row() -> None:
    with pytest.raises(ValueError, match=r"^calls with these bytes take from 10\.0 to 20\.0 us$"):
        row([[0.01] * 7, [0.02] * 7])


def test_a_call_of_which_nothing_is_left_is_no_row() -> None:
    """What PyTorch launched in front was taken off."""
    with pytest.raises(ValueError, match=r"^what is launched in front takes as long as the whole$"):
        row([[-0.001] * 7])
