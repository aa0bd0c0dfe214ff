"""Ranks that run meet as the simulation of whole traces has it, whoever they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from presim.cost.price import Origin, Price, PricedTrace
from presim.engine.live import LiveEngine
from presim.engine.matching import match_collectives
from presim.engine.ops import build_ops
from presim.engine.simulation_options import Options
from presim.evaluation.live.collective_matching import CollectiveMatcher
from presim.trace.builder import TraceBuilder
from presim.trace.representatives import Representatives
from presim.trace.schema import Group, Manifest, Trace
from presim.trace.signatures import Collective

Groups = Sequence[tuple[str, tuple[int, ...]]]  # name and members
Job = Mapping[int, tuple[Groups, Sequence[Collective]]]


def reduce(group: int) -> Collective:
    return Collective(kind="all_reduce", bytes=8, dtype="uint8", group=group)


def message(kind: str, group: int, peer: int) -> Collective:
    return Collective(kind=kind, bytes=8, dtype="uint8", group=group, peer=peer)


def trace(rank: int, groups: Groups, calls: Sequence[Collective]) -> Trace:
    named = tuple(Group(name=name, ranks=ranks, size=len(ranks)) for name, ranks in groups)
    build = TraceBuilder(Manifest(world_size=8, rank=rank, gpu="", gpus_per_node=8, script="", groups=named))
    for call in calls:
        build.work(call)
    return build.trace()


def partners(numbers: Mapping[int, Sequence[int]]) -> set[frozenset[tuple[int, int]]]:
    """Who meets: sets of (rank, n-th call)."""
    found: dict[int, set[tuple[int, int]]] = {}
    for rank, of_rank in numbers.items():
        for call, number in enumerate(of_rank):
            if number >= 0:
                found.setdefault(number, set()).add((rank, call))
    return {frozenset(each) for each in found.values()}


STAGES = {0: [1], 2: [3]}  # two stages of two ranks each
WORLD = ("world", (0, 1, 2, 3))
JOBS: dict[str, tuple[dict[int, list[int]], Job]] = {
    "tensor and pipeline parallel": (
        STAGES,
        {
            0: ([("tp", (0, 1)), ("pp", (0, 2)), WORLD], [reduce(0), message("send", 1, 1), reduce(2), reduce(0)]),
            2: ([("pp", (0, 2)), ("tp", (2, 3)), WORLD], [message("recv", 0, 0), reduce(1), reduce(2)]),
        },
    ),
    "each stage's peer is stood for by the other": (
        STAGES,
        {
            0: ([("first", (0, 3))], [reduce(0), reduce(0), message("send", 0, 1)]),
            2: ([("second", (1, 2))], [reduce(0), reduce(0), message("recv", 0, 0)]),
        },
    ),
    "two communicators of the same ranks are told apart by name": (
        {},
        {
            0: ([("a", (0, 1)), ("b", (0, 1))], [reduce(0), reduce(1), reduce(0)]),
            1: ([("b", (0, 1)), ("a", (0, 1))], [reduce(0), reduce(1), reduce(1)]),
        },
    ),
    "nobody stands for the others": (
        {},
        {
            0: ([("world", (0, 1, 2)), ("far", (0, 2))], [reduce(0), reduce(1), message("send", 0, 2)]),
            1: ([("world", (0, 1, 2))], [reduce(0)]),
        },
    ),
}


@pytest.mark.parametrize("name", JOBS)
def test_the_same_calls_meet_as_in_whole_traces(name: str) -> None:
    """In pieces of one call, by turns."""
    stands_for, job = JOBS[name]
    traces = [trace(rank, *job[rank]) for rank in sorted(job)]
    representatives = Representatives(sorted(job), stands_for)
    whole = match_collectives(traces, representatives)
    engine = LiveEngine(len(job), Options(), compiled=False)
    meetings = CollectiveMatcher(engine, representatives)
    numbers: dict[int, list[int]] = {rank: [] for rank in job}
    for call in range(max(len(calls) for _, calls in job.values())):
        for rank, (groups, calls) in job.items():
            if call < len(calls):
                piece = trace(rank, groups, calls[call : call + 1])
                price = Price(1, Origin.ANALYTIC, 0.1, "test")
                ops = build_ops(PricedTrace(piece, (price,)), Options(), engine.classes)
                numbers[rank] += meetings.match_ops(rank, ops, [name for name, _ in groups]).tolist()
    of_rank = {item.manifest.rank: match.tolist() for item, match in zip(traces, whole.match, strict=True)}
    assert partners(numbers) == partners(of_rank)
    assert partners(numbers)


def test_a_call_that_waits_for_ranks_is_said_with_its_line() -> None:
    """Of two that the first rank made, the second rank has come to one."""
    engine = LiveEngine(2, Options(), compiled=False)
    meetings = CollectiveMatcher(engine, Representatives([0, 1]))
    groups = [("world", (0, 1))]
    for rank, calls in ((0, [reduce(0), reduce(0)]), (1, [reduce(0)])):
        piece = trace(rank, groups, calls)
        price = Price(1, Origin.ANALYTIC, 0.1, "test")
        ops = build_ops(PricedTrace(piece, (price,)), Options(), engine.classes)
        meetings.match_ops(rank, ops, ["world"])
    assert meetings.describe_incomplete() == [
        f"rank 0: {reduce(0).kind} of {reduce(0).bytes} bytes (uint8) on 'world' (ranks 0, 1)"
    ]
