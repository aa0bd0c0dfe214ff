"""Which ranks are merged, and what is assumed for ranks that did not run."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from golden.scenarios import kernel
from presim.capture.ranks.distinct_replicas import DistinctReplicas
from presim.capture.ranks.rank_grid import Axis, ReplicatedWorld
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Manifest, Phase, Trace

WORLD = 12


def trace(rank: int, work: str) -> Trace:
    build = TraceBuilder(Manifest(world_size=WORLD, rank=rank, gpu="", gpus_per_node=4, script=""))
    build.work(kernel(work), phase=Phase.FORWARD)
    build.step()
    return build.trace()


@given(st.lists(st.sampled_from("abc"), min_size=WORLD, max_size=WORLD))
def test_every_rank_is_represented_by_one_that_does_the_same(work: list[str]) -> None:
    kinds = DistinctReplicas(ReplicatedWorld(WORLD))
    for rank in range(WORLD):
        kinds.add(rank, [trace(rank, work[rank])])
    captured = [one.manifest.rank for one in kinds.captured()]
    stands_for = kinds.stands_for()
    assert [work[rank] for rank in captured] == list(dict.fromkeys(work))
    assert sorted([*captured, *(rank for others in stands_for.values() for rank in others)]) == list(range(WORLD))
    assert all(work[rank] == work[other] for rank, others in stands_for.items() for other in others)
    assert kinds.compared() == sorted(rank for others in stands_for.values() for rank in others)
    assert not kinds.undecided()


def test_absent_ranks_are_assumed_like_the_next_lower_one_and_undecided_between_kinds() -> None:
    kinds = DistinctReplicas(ReplicatedWorld(WORLD))
    for rank, work in ((0, "a"), (4, "a"), (11, "b")):
        kinds.add(rank, [trace(rank, work)])
    assert kinds.gaps() == [(4, 11)]
    assert kinds.undecided() == [5, 6, 7, 8, 9, 10]
    assert kinds.stands_for() == {0: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}
    assert kinds.compared() == [4]


def test_replicas_differ_if_one_of_their_ranks_does() -> None:
    """Pipelines of two stages, which start at ranks 0 to 5."""
    kinds = DistinctReplicas(ReplicatedWorld(WORLD, (Axis(6, 2),)))
    assert kinds.add(0, [trace(0, "a"), trace(6, "b")]) == ""
    assert kinds.add(1, [trace(1, "a"), trace(7, "b")]) == ""
    different = kinds.add(2, [trace(2, "a"), trace(8, "c")])
    assert different == "rank 8 differs from rank 6 at entry 0 of rank 6 (kernel)"
    assert [one.manifest.rank for one in kinds.captured()] == [0, 2, 6, 8]
    assert kinds.stands_for() == {0: [1], 6: [7], 2: [3, 4, 5], 8: [9, 10, 11]}
