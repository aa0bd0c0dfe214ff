"""To how many places a token goes."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.trace.routing import distinct


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
