"""Prompts are split into chunks that cover them, each with all tokens before it as keys."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from presim.serving.prompts import shares
from presim.serving.prompts.shares import Way


@given(st.integers(1, 5000), st.integers(1, 16))
def test_every_way_computes_every_token_once(length: int, ranks: int) -> None:
    for way in shares.ways(length, ranks):
        calls = [call for rank in shares.calls(length, way) for call in rank]
        assert sum(queries for queries, _ in calls) == length
        assert sorted((keys - queries, keys) for queries, keys in calls)[-1][1] == length
        assert all(queries >= 1 for queries, _ in calls)


def test_zigzag_balances_causal_work_and_contiguous_chunks_do_not() -> None:
    def pairs(layout: shares.Layout) -> list[int]:
        found = shares.calls(8000, Way(4, 0, layout))
        return [sum(queries * (keys - queries // 2) for queries, keys in rank) for rank in found]

    assert max(pairs("zigzag")) == min(pairs("zigzag"))
    assert pairs("contiguous")[-1] == 7 * pairs("contiguous")[0]


def test_degrees_are_divisors_and_short_prompts_have_fewer_ways() -> None:
    assert shares.degrees(12) == [1, 2, 3, 4, 6, 12]
    assert {way.layout for way in shares.ways(1, 4)} == {"whole"}
    assert {way.degree for way in shares.ways(3, 4) if way.layout == "contiguous"} == {2}
