"""Ranks that are simulated apart from the one that does the same."""

from __future__ import annotations

import pytest

from presim.errors import InputError
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Group, Manifest, Trace
from presim.trace.signatures import Collective, Signature
from presim.trace.splitting import as_rank, split

WORLD, TENSOR, PIPE = tuple(range(8)), (0, 1), (0, 4)


def trace(*signatures: Signature, groups: tuple[tuple[int, ...], ...] = (WORLD, TENSOR, PIPE)) -> Trace:
    named = tuple(Group(f"g{index}", ranks, len(ranks)) for index, ranks in enumerate(groups))
    build = TraceBuilder(Manifest(world_size=8, rank=0, gpu="h100-sxm", gpus_per_node=8, script="", groups=named))
    for signature in signatures:
        build.work(signature)
    return build.trace()


def test_only_the_ranks_concerned_are_apart() -> None:
    """One voice for each way in which ranks differ; everybody has exactly one."""
    one = trace()
    traces, speak = split([one], {0: range(1, 8)}, {2: 0.5, 3: 0.5, 7: 0.9})
    assert [each.manifest.rank for each in traces] == [0, 2, 7]
    assert speak == {0: [1, 4, 5, 6], 2: [3]}
    assert traces[0] is one


def test_a_captured_rank_that_becomes_slow_leaves_the_others_to_one_of_them() -> None:
    traces, speak = split([trace()], {0: range(1, 8)}, {0: 0.5})
    assert [each.manifest.rank for each in traces] == [0, 1]
    assert speak == {1: [2, 3, 4, 5, 6, 7]}


def test_groups_are_those_of_the_rank_s_own_place() -> None:
    moved = as_rank(trace(), 7)
    assert [group.ranks for group in moved.manifest.groups] == [WORLD, (6, 7), (3, 7)]


def test_a_part_of_a_grid_moves_with_it() -> None:
    """Stages 1 and 2 of a pipeline of four are no grid, but the pipeline is."""
    moved = as_rank(trace(groups=(WORLD, (0, 2, 4, 6), (0, 4, 6))), 1)
    assert [group.ranks for group in moved.manifest.groups] == [WORLD, (1, 3, 5, 7), (1, 5, 7)]


def test_messages_go_to_the_same_distance() -> None:
    send = Collective("send", 8, "float32", group=2, peer=1)
    (seen,) = as_rank(trace(send), 5).signatures
    assert isinstance(seen, Collective)
    assert seen.peer == 0
    assert as_rank(trace(send), 3).signatures == (send,)


def test_a_group_that_is_no_grid_is_named() -> None:
    with pytest.raises(InputError, match=r"the group 'g0' of 3 ranks forms no grid; capture rank 5 as well"):
        as_rank(trace(groups=((0, 1, 3),)), 5)


def test_a_group_of_one_rank_goes_with_it() -> None:
    assert as_rank(trace(groups=(WORLD, (0,))), 5).manifest.groups[1].ranks == (5,)
