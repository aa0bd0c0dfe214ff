"""What NCCL sets up once: of more ranks never less, and as long as its own logs say where there are some."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.cost.collectives.communicator_setup import SetUp, connection, creation, peer


@pytest.mark.parametrize(("ranks", "logged_s"), [(2, 0.37), (8, 0.59), (8, 0.85), (16, 0.86), (8, 2.84), (4096, 150)])
def test_logs_of_nccl_are_within_the_interval(ranks: int, logged_s: float) -> None:
    found = creation(ranks)
    assert found.low_s <= logged_s <= found.high_s


@given(st.integers(2, 100_000), st.integers(2, 100_000))
def test_setup_time_does_not_decrease_with_ranks(one: int, other: int) -> None:
    few, many = creation(min(one, other)), creation(max(one, other))
    assert few.low_s <= many.low_s
    assert few.seconds <= many.seconds
    assert few.high_s <= many.high_s


def test_a_single_rank_has_no_setup_time() -> None:
    assert creation(1) == SetUp()
    assert creation(1).seconds == 0


def test_the_single_figure_lies_within_the_interval() -> None:
    for each in (creation(8), connection(), peer(), creation(8) + connection()):
        assert each.low_s < each.seconds < each.high_s
