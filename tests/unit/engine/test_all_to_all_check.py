"""All-to-alls whose ranks do not agree on their parts."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from presim.engine.matching import match_collectives
from presim.errors import HangError
from presim.trace.builder import TraceBuilder
from presim.trace.collective import Collective, Splits
from presim.trace.representatives import Representatives
from presim.trace.schema import Group, Manifest, Trace

EVERYBODY = (0, 1, 2)
Parts = tuple[tuple[int, ...], tuple[int, ...]] | int  # bytes sent and received, or those of equal parts together


def trace(rank: int, parts: Sequence[Parts]) -> Trace:
    """A rank that calls one all-to-all after the other."""
    group = Group(name="experts", ranks=EVERYBODY, size=len(EVERYBODY))
    build = TraceBuilder(Manifest(world_size=3, rank=rank, gpu="", gpus_per_node=8, script="", groups=(group,)))
    for each in parts:
        even = isinstance(each, int)
        splits = None if isinstance(each, int) else Splits(rank, *each)
        total = each if isinstance(each, int) else sum(each[0])
        build.work(
            Collective(kind="all_to_all", bytes=total, dtype="", group=0, splits=splits), site=f"moe.py:{7 + even}"
        )
    return build.trace()


def test_ranks_that_agree_meet() -> None:
    first = trace(0, [((4, 2, 0), (4, 6, 1)), 30])
    second = trace(1, [((6, 0, 0), (2, 0, 5)), 30])
    matching = match_collectives([first, second, trace(2, [((1, 5, 0), (0, 0, 0)), 30])])
    assert [match.tolist() for match in matching.match] == [[0, 1]] * 3


def test_a_part_of_another_size_than_its_receiver_expects_is_a_hang() -> None:
    """The first one, after others that are right."""
    calls: list[Parts] = [30, ((0, 2, 0), (0, 2, 0))]
    ranks = [trace(0, calls), trace(1, [30, ((2, 0, 0), (3, 0, 0))]), trace(2, [30, 0])]
    expected = (
        "the job would hang: in an all-to-all, rank 0 sends 2 bytes to rank 1, which expects 3 bytes: "
        "rank 0, entry 1 at moe.py:7: all_to_all of 2 bytes on 'experts' (ranks 0 to 2); "
        "rank 1, entry 1 at moe.py:7: all_to_all of 2 bytes on 'experts' (ranks 0 to 2)"
    )
    with pytest.raises(HangError, match=f"^{re.escape(expected)}"):
        match_collectives(ranks)


def test_equal_parts_meet_uneven_ones_of_the_same_size_only() -> None:
    match_collectives([trace(0, [9]), trace(1, [((3, 1, 1), (3, 1, 1))])])
    with pytest.raises(HangError, match="rank 0 sends 4 bytes to rank 1, which expects 3"):
        match_collectives([trace(0, [12]), trace(1, [((4, 1, 1), (3, 1, 1))])])


def test_sizes_of_represented_ranks_are_not_compared() -> None:
    """Rank 0 represents rank 2, which has no sizes of its own."""
    first, second = trace(0, [((1, 2, 3), (1, 5, 1))]), trace(1, [((5, 0, 0), (2, 0, 9))])
    match_collectives([first, second], Representatives([0, 1], {0: [2]}))
