"""Sizes as polynomials in batch and sequence."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from presim.composition.graph.sizes import Polynomial, read, write

TERMS = st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=4)


@given(TERMS, st.integers(1, 64), st.integers(1, 8192))
def test_what_is_written_is_read_as_the_same_number(terms: list[tuple[int, int, int]], b: int, s: int) -> None:
    polynomial = Polynomial(tuple(terms))
    assert read(write(polynomial))(b, s) == polynomial(b, s)


def test_a_sum_of_products_is_one() -> None:
    assert read("8192*B*S+1")(2, 3) == 49153
    assert read(7)(2, 3) == 7
