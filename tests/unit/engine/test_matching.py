"""Which collectives of different ranks are one."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import msgspec
import pytest

from golden.scenarios import kernel
from presim.engine.matching import match_collectives
from presim.errors import HangError
from presim.trace.builder import TraceBuilder
from presim.trace.representatives import Representatives
from presim.trace.schema import Group, Manifest, Trace
from presim.trace.signatures import Collective


def trace(
    rank: int, calls: Sequence[Collective], groups: Sequence[tuple[int, ...]], scope: str = "", site: str = ""
) -> Trace:
    named = tuple(Group(name=f"g{index} of {rank}", ranks=ranks, size=len(ranks)) for index, ranks in enumerate(groups))
    build = TraceBuilder(Manifest(world_size=8, rank=rank, gpu="", gpus_per_node=8, script="", groups=named))
    for call in calls:
        build.work(call, scope=scope, site=site)
    return build.trace()


def reduce(group: int = 0, size: int = 8) -> Collective:
    return Collective(kind="all_reduce", bytes=size, dtype="uint8", group=group)


def message(kind: str, peer: int) -> Collective:
    return Collective(kind=kind, bytes=8, dtype="uint8", group=0, peer=peer)


def test_a_single_rank_has_no_rendezvous() -> None:
    matching = match_collectives([trace(0, [reduce(), reduce()], [(0, 1)])])
    assert [match.tolist() for match in matching.match] == [[-1, -1]]
    assert matching.needed.tolist() == []


def test_the_nth_call_meets_the_nth_call_despite_other_entries() -> None:
    build = TraceBuilder(trace(1, [], [(0, 1)]).manifest)
    build.work(kernel(1))
    build.work(reduce())
    build.work(kernel(1))
    build.work(reduce())
    matching = match_collectives([trace(0, [reduce(), reduce()], [(0, 1)]), build.trace()])
    assert [match.tolist() for match in matching.match] == [[0, 1], [-1, 0, -1, 1]]
    assert matching.needed.tolist() == [2, 2]


def test_a_communicator_is_identified_by_its_members_not_its_name() -> None:
    first = trace(0, [reduce(0), reduce(1)], [(0, 1), (0, 1, 2)])
    second = trace(1, [reduce(1), reduce(0)], [(0, 1, 2), (0, 1)])
    matching = match_collectives([first, second])
    (pair, three), (pair_again, three_again) = (match.tolist() for match in matching.match)
    assert (pair, three) == (pair_again, three_again)
    assert pair != three


def test_order_of_groups_does_not_matter_if_names_agree() -> None:
    """Pipeline stages make communicators in the order of their first use, which differs between stages."""
    everyone, pipeline = (Group(name=name, ranks=(0, 1), size=2) for name in ("default_pg", "pipeline"))
    traces = []
    for rank, groups in ((0, (everyone, pipeline)), (1, (pipeline, everyone))):
        build = TraceBuilder(Manifest(world_size=2, rank=rank, gpu="", gpus_per_node=2, script="", groups=groups))
        build.work(reduce(groups.index(everyone), 8))
        build.work(reduce(groups.index(pipeline), 64))
        traces.append(build.trace())
    first, second = (match.tolist() for match in match_collectives(traces).match)
    assert first == second
    assert len(set(first)) == 2


def test_communicators_of_the_same_members_are_distinguished_by_order() -> None:
    first = trace(0, [reduce(0), reduce(1)], [(0, 1), (0, 1)])
    second = trace(1, [reduce(1), reduce(0)], [(0, 1), (0, 1)])
    matching = match_collectives([first, second])
    assert matching.match[0].tolist() == matching.match[1].tolist()[::-1]


def test_only_simulated_members_take_part() -> None:
    everybody = (0, 1, 2, 3)
    matching = match_collectives([trace(rank, [reduce()], [everybody]) for rank in (0, 2, 3)])
    assert matching.needed.tolist() == [3]


def test_a_send_meets_the_receive_of_its_peer_and_directions_are_counted_apart() -> None:
    groups = [(4, 6)]  # peers are ranks of the group
    first = trace(4, [message("send", 1), message("recv", 1), message("send", 1)], groups)
    second = trace(6, [message("recv", 0), message("recv", 0), message("send", 0)], groups)
    matching = match_collectives([first, second])
    here, there = (match.tolist() for match in matching.match)
    assert [here[0], here[2], here[1]] == there
    assert matching.needed.tolist() == [2, 2, 2]


def test_a_message_to_a_rank_outside_the_simulation_has_no_rendezvous() -> None:
    matching = match_collectives([trace(rank, [message("send", 3)], [(0, 1, 2, 3)]) for rank in (0, 1)])
    assert all(match.tolist() == [-1] for match in matching.match)


def test_a_group_of_unknown_members_has_no_rendezvous() -> None:
    assert match_collectives([trace(rank, [reduce(5)], [()]) for rank in (0, 1)]).needed.tolist() == []


def test_ranks_that_call_different_operations_are_named() -> None:
    first = trace(0, [reduce(), reduce(size=4)], [(0, 1)], scope="layers.1")
    second = trace(1, [reduce(), reduce(size=16)], [(0, 1)], site="train.py:31")
    expected = (
        "the job would hang: ranks call different collectives at the same point of a communicator: "
        "rank 0, entry 1 in layers.1: all_reduce of 4 bytes (uint8) on 'g0 of 0' (ranks 0, 1); "
        "rank 1, entry 1 at train.py:31: all_reduce of 16 bytes (uint8) on 'g0 of 1' (ranks 0, 1). "
        "Compare what these ranks call before; no rank's order may differ"
    )
    with pytest.raises(HangError, match=f"^{re.escape(expected)}$"):
        match_collectives([first, second])


@pytest.mark.parametrize(
    "other",
    [
        Collective("all_gather", 8, "uint8", 0),
        Collective("all_reduce", 8, "float32", 0),
        Collective("all_reduce", 16, "uint8", 0),
    ],
)
def test_another_kind_type_or_size_is_a_disagreement(other: Collective) -> None:
    with pytest.raises(HangError, match="ranks call different collectives"):
        match_collectives([trace(0, [reduce()], [(0, 1)]), trace(1, [other], [(0, 1)])])


def test_another_root_is_a_disagreement() -> None:
    first, second = (trace(rank, [message("broadcast", rank)], [(0, 1)]) for rank in (0, 1))
    with pytest.raises(
        HangError, match=re.escape("broadcast of 8 bytes (uint8) on 'g0 of 1' (ranks 0, 1) with its rank 1")
    ):
        match_collectives([first, second])


def test_representatives_meet_in_place_of_the_ranks_they_represent() -> None:
    """Two stages of four ranks, seen by rank 0 and by rank 6: pipeline groups (0, 4) and (2, 6)."""
    representatives = Representatives([0, 6], {0: (1, 2, 3), 6: (4, 5, 7)})
    first = trace(0, [message("send", 1), reduce(1), message("recv", 1)], [(0, 4), (0, 1, 2, 3)])
    second = trace(6, [message("recv", 0), message("send", 0), reduce(1)], [(2, 6), (4, 5, 6, 7)])
    matching = match_collectives([first, second], representatives)
    assert [match.tolist() for match in matching.match] == [[0, -1, 1], [0, 1, -1]]
    assert matching.needed.tolist() == [2, 2]


def test_a_rank_that_represents_both_ends_of_a_message_does_not_wait() -> None:
    """A ring within one stage."""
    ring = trace(0, [message("send", 1), message("recv", 3)], [(0, 1, 2, 3)])
    other = trace(4, [], [])
    matching = match_collectives([ring, other], Representatives([0, 4], {0: (1, 2, 3)}))
    assert matching.match[0].tolist() == [-1, -1]


def test_the_uneven_last_shard_of_a_stage_meets_the_stage_before_as_well() -> None:
    """Rank 0 sends for 1, too, which is the peer of rank 3: what it sends is there for both."""
    representatives = Representatives([0, 2, 3], {0: (1,)})
    sends = trace(0, [message("send", 1)], [(0, 2)])
    even = trace(2, [message("recv", 0)], [(0, 2)])
    uneven = trace(3, [message("recv", 0)], [(1, 3)])
    matching = match_collectives([sends, even, uneven], representatives)
    assert [match.tolist() for match in matching.match] == [[0], [0], [0]]
    assert matching.needed.tolist() == [3]


def test_calls_before_a_failure_still_meet() -> None:
    """A rank that ran out of memory is waited for no longer than it lived."""
    survivor, failed = trace(0, [reduce(), reduce()], [(0, 1)]), trace(1, [reduce()], [(0, 1)])
    manifest = msgspec.structs.replace(failed.manifest, exit="out_of_memory")
    matching = match_collectives([survivor, dataclasses.replace(failed, manifest=manifest)])
    assert matching.needed.tolist() == [2, 1]


def test_a_hundred_thousand_ranks_cost_what_their_representatives_do() -> None:
    """Four stages of 25,000 ranks, each with one that is captured: pairs meet along the pipeline, nobody else."""
    world, stages = 100_000, 4
    size = world // stages
    captured = [stage * size for stage in range(stages)]
    stands_for = {rank: range(rank + 1, rank + size) for rank in captured}
    groups = [tuple(range(world)), tuple(captured)]
    traces = []
    for stage, rank in enumerate(captured):
        own = [*groups, tuple(range(rank, rank + size))]
        calls = [reduce(0), reduce(2)]
        calls += [msgspec.structs.replace(message("recv", stage - 1), group=1)] if stage else []
        calls += [msgspec.structs.replace(message("send", stage + 1), group=1)] if stage < stages - 1 else []
        traces.append(trace(rank, calls, own))
    matching = match_collectives(traces, Representatives(captured, stands_for))
    assert matching.needed.tolist() == [4, 2, 2, 2]
