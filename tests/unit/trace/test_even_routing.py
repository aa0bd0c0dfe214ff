"""To how many places a token goes."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.trace.collective import Routed
from presim.trace.even_routing import distinct, places_of


@pytest.mark.parametrize(("places", "experts", "chosen"), [(2, 4, 2), (4, 8, 3), (3, 6, 6), (8, 8, 2)])
def test_it_is_the_mean_over_all_choices(places: int, experts: int, chosen: int) -> None:
    each = experts // places
    counts = [len({expert // each for expert in choice}) for choice in combinations(range(experts), chosen)]
    assert distinct(places, experts, chosen) == pytest.approx(sum(counts) / len(counts))


@given(st.integers(1, 64), st.integers(1, 8), st.integers(1, 16))
def test_it_is_no_more_than_places_or_choices(places: int, each: int, chosen: int) -> None:
    chosen = min(chosen, places * each)
    found = distinct(places, places * each, chosen)
    assert 1 - 1e-9 <= found <= min(places, chosen) + 1e-9


def test_what_was_counted_goes_before_what_is_expected() -> None:
    """16 ranks of 4 experts each; places are ranks, pairs of them, ... all."""
    counted = Routed("deepep", 4096, 1024, 8, 64, 20, (2.0, 1.5, 1.25, 1.125, 1.0))
    assert [places_of(counted, places, 16) for places in (16, 8, 4, 2, 1)] == list(counted.spread)
    unknown = Routed("deepep", 4096, 1024, 8, 64, 20)
    assert places_of(unknown, 8, 16) == distinct(8, 64, 8)


@pytest.mark.parametrize(("places", "ranks"), [(2, 12), (5, 16), (3, 16), (1, 32)])
def test_places_of_another_size_are_expected(places: int, ranks: int) -> None:
    """Of six ranks, of a part of one, of more than were counted."""
    counted = Routed("deepep", 4096, 1024, 8, 960, 20, (2.0, 1.5, 1.25, 1.125, 1.0))
    assert places_of(counted, places, ranks) == distinct(places, 960, 8)
