"""Whether the calls of all ranks can be sorted into one order."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from presim.trace.builder import TraceBuilder
from presim.trace.call_order import have_common_order
from presim.trace.schema import Group, Manifest, Trace
from presim.trace.signatures import Collective

PAIR = (0, 1)


def trace(rank: int, calls: Sequence[Collective], groups: Sequence[Group]) -> Trace:
    manifest = Manifest(world_size=4, rank=rank, gpu="", gpus_per_node=4, script="", groups=tuple(groups))
    build = TraceBuilder(manifest)
    for call in calls:
        build.work(call)
    return build.trace()


def reduce(group: int) -> Collective:
    return Collective(kind="all_reduce", bytes=8, dtype="uint8", group=group)


def two(first: int, second: int, ordinals: tuple[int, int] = (0, 1)) -> list[Trace]:
    """Rank 0 calls groups 0 and 1 of the same two ranks; rank 1 calls the named ones."""
    groups = [Group("dp", PAIR, 2, ordinal) for ordinal in ordinals]
    return [trace(0, [reduce(0), reduce(1)], groups), trace(1, [reduce(first), reduce(second)], groups)]


def test_groups_of_equal_ranks_and_names_are_different_communicators() -> None:
    """They are told apart by the order of creation, whatever order they are used in."""
    assert have_common_order(two(0, 1))
    assert not have_common_order(two(1, 0))


def test_a_call_that_another_rank_never_makes_has_no_order() -> None:
    assert not have_common_order([trace(0, [reduce(0)], [Group("a", PAIR, 2)]), trace(1, [], [Group("a", PAIR, 2)])])


def test_ranks_that_do_the_same_may_wait_in_a_ring() -> None:
    """Each rank calls the group with its next rank first, then the one with its previous rank."""

    def ring(rank: int) -> Trace:
        pairs = [tuple(sorted((rank, (rank + step) % 4))) for step in (1, -1)]
        return trace(rank, [reduce(0), reduce(1)], [Group("", pair, 2) for pair in pairs])

    assert not have_common_order([ring(rank) for rank in range(4)])


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(lambda pair: pair[0] < pair[1]), max_size=30))
def test_calls_made_in_one_sequence_have_a_common_order(pairs: list[tuple[int, int]]) -> None:
    """Whatever pairs of ranks call: no rank makes a later call first."""

    def of_rank(rank: int) -> Trace:
        own = [pair for pair in pairs if rank in pair]
        groups = list(dict.fromkeys(own))
        return trace(rank, [reduce(groups.index(pair)) for pair in own], [Group("", pair, 2) for pair in groups])

    assert have_common_order([of_rank(rank) for rank in range(4)])
