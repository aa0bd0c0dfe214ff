"""The captured ranks side by side."""

from __future__ import annotations

from golden.scenarios import kernel
from presim.analysis.rank_figures import find_fullest_rank, straggler_note, unmatched_group_note
from presim.evaluation.evaluate_traces import evaluate
from presim.hardware.cluster_choice import choose_cluster
from presim.result import Rank
from presim.trace.builder import TraceBuilder
from presim.trace.job import Job
from presim.trace.representatives import Representatives
from presim.trace.schema import Group, Manifest, Trace
from presim.trace.signatures import Collective

GIB = 1 << 30


def trace(rank: int, reserved: int, exit_: str = "ok") -> Trace:
    build = TraceBuilder(Manifest(world_size=2, rank=rank, gpu="h100-sxm", gpus_per_node=2, script="", exit=exit_))
    build.segment(1 << 40, reserved)
    build.alloc(1 << 40, reserved)
    build.work(kernel(1_000))
    build.step()
    return build.trace()


def line(rank: int, compute_s: float) -> Rank:
    return Rank(
        rank=rank,
        represented=1,
        step_time_s=1.0,
        compute_s=compute_s,
        exposed_communication_s=0.0,
        waiting_s=0.0,
        bubble_s=1.0 - compute_s,
        host_bound_s=0.0,
        peak_allocated_bytes=0,
        peak_reserved_bytes=0,
        parameters=None,
        exit="ok",
    )


def test_the_job_fits_only_if_its_fullest_rank_does() -> None:
    """Whichever rank the report is about."""
    cluster = choose_cluster(gpu="h100-sxm", world_size=2)
    small, large = trace(0, GIB), trace(1, 90 * GIB)
    memory = evaluate(Job.of([small, large]), cluster).result.memory
    assert memory.fits is False
    assert memory.peak_reserved_bytes == 90 * GIB
    assert memory.verdict.startswith("Rank 1, the fullest: Does not fit")
    assert evaluate(Job.of([small, large]), cluster, rank=1).result.memory.verdict.startswith("Does not fit")


def test_a_rank_that_ran_out_of_memory_is_the_fullest() -> None:
    assert find_fullest_rank([trace(0, 20 * GIB), trace(1, 10 * GIB, "out_of_memory")]) == 1
    assert find_fullest_rank([trace(0, GIB), trace(1, GIB)]) == 0


def test_the_straggler_is_named() -> None:
    found = straggler_note([line(0, 0.6), line(1, 0.9), line(2, 0.7)])
    assert found == [
        "Rank 1 is the straggler with 900 ms of work in a step of 1.00 s; rank 0 waits longest for other ranks, 400 ms."
    ]


def test_equal_ranks_are_not_worth_a_sentence() -> None:
    assert straggler_note([line(0, 0.9), line(1, 0.895)]) == []
    assert straggler_note([line(0, 0.9)]) == []


def calling(rank: int, *groups: tuple[int, ...]) -> Trace:
    named = tuple(Group(name=f"g{index}", ranks=ranks, size=len(ranks)) for index, ranks in enumerate(groups))
    build = TraceBuilder(Manifest(world_size=4, rank=rank, gpu="", gpus_per_node=4, script="", groups=named))
    for index in range(len(groups)):
        build.work(Collective(kind="all_reduce", bytes=8, dtype="uint8", group=index))
    return build.trace()


def test_a_member_without_a_counterpart_group_is_named() -> None:
    """Rank 3 stands for 1 and 2, but only rank 1 shares a group with rank 0."""
    everyone = (0, 1, 2, 3)
    who = Representatives([0, 3], {3: [1, 2]})
    (sentence,) = unmatched_group_note([calling(0, everyone, (0, 1)), calling(3, everyone)], who)
    assert sentence.startswith(
        "Ranks 0 and 1 communicate in group 'g1', but rank 3, which represents rank 1, has no such group"
    )
    assert unmatched_group_note([calling(0, everyone, (0, 1)), calling(3, everyone, (2, 3))], who) == []
    assert unmatched_group_note([calling(0, everyone, (0, 1)), calling(3, everyone)], Representatives([0, 3])) == []
