"""Reducing several calls of one signature to one row with a spread."""

from __future__ import annotations

import pytest

from presim.cost.profile.call_times import row, run_times


def test_one_call_gives_its_median_and_half_the_interquartile_range() -> None:
    assert row([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]]) == {"duration_ns": 4e6, "spread": 0.5, "samples": 7}


def test_two_calls_give_the_midpoint_and_half_their_difference() -> None:
    assert row([[0.8] * 7, [1.2] * 9]) == {"duration_ns": 1e6, "spread": pytest.approx(0.2), "samples": 16}


def test_very_different_calls_give_no_row() -> None:
    with pytest.raises(ValueError, match=r"^calls with these bytes take between 10\.0 and 20\.0 us$"):
        row([[0.01] * 7, [0.02] * 7])


def test_a_call_without_time_of_its_own_gives_no_row() -> None:
    """The kernels that PyTorch launched first were subtracted."""
    with pytest.raises(ValueError, match=r"^the kernels launched first take as long as the whole call$"):
        row([[-0.001] * 7])


def test_runs_are_what_lies_between_sweeps() -> None:
    """A run of several kernels lasts from the start of its first to the end of its last; what came earlier is none."""
    spans = [(0, 9, "product"), (10, 20, "sweep"), (21, 25, "add"), (30, 40, "sweep"), (41, 44, "max"), (45, 49, "sum")]
    assert run_times(spans, "sweep") == pytest.approx([4e-6, 8e-6])
    assert len(run_times([*spans, (50, 60, "sweep")], "sweep")) == 2  # without a kernel
    assert run_times([(0, 9, "product")], "sweep") == []
