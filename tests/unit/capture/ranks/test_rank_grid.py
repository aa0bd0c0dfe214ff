"""Replicas of the ranks that exchange messages."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.capture.ranks.rank_grid import (
    Axis,
    ReplicatedWorld,
    exchange_closure,
    exchange_peers,
    find_layout,
    is_pipeline,
    message_groups,
)
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Group, Manifest
from presim.trace.signatures import Collective


@pytest.mark.parametrize(
    ("groups", "world_size", "ranks"),
    [
        ([], 1, (0,)),
        ([(0, 4, 8, 12)], 16, (0, 4, 8, 12)),
        ([(0, 4, 8, 12), (3, 7, 11, 15)], 16, (0, 4, 8, 12)),
        ([(0, 32), (1, 0)], 64, (0, 1, 32, 33)),
        ([(0, 4), range(8)], 8, tuple(range(8))),
        ([(0, 2), (0, 2, 4, 6)], 8, (0, 2, 4, 6)),
        ([(0, 8), range(16)], 16, tuple(range(16))),
    ],
)
def test_the_closure_has_all_ranks_that_exchange_messages(
    groups: list[Sequence[int]], world_size: int, ranks: tuple[int, ...]
) -> None:
    assert exchange_closure(groups, world_size) == ranks


def test_a_rank_has_the_place_of_its_stage() -> None:
    layout = find_layout((0, 4, 8, 12), 16)
    assert layout == ReplicatedWorld(16, (Axis(4, 4),))
    assert layout.stands_for() == {0: [1, 2, 3], 4: [5, 6, 7], 8: [9, 10, 11], 12: [13, 14, 15]}
    assert layout.stands_for(0, (3, 7, 11, 15))[4] == [5, 6]
    assert layout.replica(3) == (3, 7, 11, 15)


def test_pipelines_may_be_the_inner_dimension() -> None:
    layout = find_layout((0, 1), 6)
    assert layout is not None
    assert layout.stands_for() == {0: [2, 4], 1: [3, 5]}


@pytest.mark.parametrize("ranks", [(0, 1, 3), (0, 5), (1, 2)])
def test_irregular_ranks_have_no_layout(ranks: tuple[int, ...]) -> None:
    assert find_layout(ranks, 16) is None


@given(st.lists(st.integers(2, 4), max_size=3), st.integers(1, 3), st.data())
def test_every_rank_is_in_one_replica(sizes: list[int], rest: int, data: st.DataObject) -> None:
    """For replicas along any dimensions of a mesh."""
    exchanging = [data.draw(st.booleans()) for _ in sizes]
    ranks, stride = {0}, 1
    for size, exchanges in zip(sizes, exchanging):
        if exchanges:
            ranks = {rank + stride * at for rank in ranks for at in range(size)}
        stride *= size
    layout = find_layout(sorted(ranks), stride * rest)
    assert layout is not None
    found = [rank for origin in layout.origins().tolist() for rank in layout.replica(origin)]
    assert sorted(found) == list(range(stride * rest))
    assert layout.offsets == tuple(sorted(ranks))


@pytest.mark.parametrize("rank", range(32))
def test_number_of_finds_the_replica_of_a_rank(rank: int) -> None:
    layout = ReplicatedWorld(32, (Axis(4, 2), Axis(16, 2)))
    assert rank in layout.replica(int(layout.origins()[layout.number_of(rank)]))


def test_message_groups_are_derived_from_a_capture() -> None:
    """A pipeline by its group name, a ring by its sends; in a large group only ranks at the same distance."""
    world = tuple(range(128))
    groups = (Group("mesh_pp", (0, 64), 2), Group("world", world, 128), Group("ring", (0, 1, 2), 3))
    build = TraceBuilder(Manifest(world_size=128, rank=0, gpu="", gpus_per_node=8, script="", groups=groups))
    build.work(Collective("all_reduce", 8, "float32", 1))
    build.work(Collective("send", 8, "float32", 2, peer=1))
    build.work(Collective("recv", 8, "float32", 1, peer=32))
    assert message_groups(build.trace()) == [(0, 64), (0, 1, 2), (0, 32, 64, 96)]


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("mesh_pp", True),
        ("PIPELINE_MODEL_PARALLEL_GROUP", True),
        ("pipe", True),
        ("EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP", False),
        ("mesh_dp_pp", False),
        ("mesh_dp", False),
        ("apply", False),
        ("", False),
    ],
)
def test_pipeline_groups_are_recognised_by_name(name: str, is_one: bool) -> None:
    assert is_pipeline(name) == is_one


@pytest.mark.parametrize(
    ("members", "rank", "peer", "expected"),
    [
        ([3, 5, 7], 3, 7, [3, 5, 7]),
        (range(0, 300, 3), 3, 6, range(0, 300, 3)),
        (range(100), 42, 52, range(2, 100, 10)),
        (range(100), 42, 42, [42]),
    ],
    ids=["a group", "next in a large one", "every tenth", "itself"],
)
def test_all_of_a_small_group_exchange_and_a_large_one_at_the_same_distance(
    members: Sequence[int], rank: int, peer: int, expected: Sequence[int]
) -> None:
    assert exchange_peers([*members], rank, peer) == (*expected,)
