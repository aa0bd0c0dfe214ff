"""Two ranks are the same if they launch the same work."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from golden.scenarios import kernel
from presim.capture.ranks.rank_comparison import LENGTH_DIFFERS, MEMORY_DIFFERS, describe_difference, fingerprint
from presim.trace.builder import TraceBuilder
from presim.trace.schema import COMPILING, STOPPED_WITH_ANOTHER, Group, Manifest, Phase, Trace
from presim.trace.signatures import Collective, Optimizer


def trace(
    rank: int = 0, *, stream: int = 0, host_ns: int = 5, size: int = 64, message: int = 8, steps: int = 2
) -> Trace:
    group = Group("dp", tuple(range(rank % 2, 8, 2)), 4)
    build = TraceBuilder(Manifest(world_size=8, rank=rank, gpu="", gpus_per_node=8, script="", groups=(group,)))
    for step in range(steps):
        build.alloc(4096 * (rank + 1), size + step, host_ns=host_ns)
        build.work(kernel("one"), stream=stream, host_ns=host_ns, scope=f"layer {rank}")
        build.work(Collective("all_reduce", message, "float32", 0), stream=stream + 1, host_ns=host_ns)
        build.step()
    return build.trace()


def alike(one: Trace, other: Trace) -> bool:
    mine, theirs = fingerprint(one), fingerprint(other)
    found = mine.first_difference(theirs)
    assert (found is None) == (theirs.first_difference(mine) is None)
    assert found is not None or mine.digest == theirs.digest
    return found is None


def test_the_place_of_a_rank_is_ignored() -> None:
    """Other members of its group, other addresses and modules, a slower host, another default stream."""
    assert alike(trace(0), trace(5, stream=3, host_ns=900))


@pytest.mark.parametrize("change", [{"size": 65}, {"message": 16}, {"steps": 3}])
def test_different_work_is_a_difference(change: dict[str, int]) -> None:
    assert not alike(trace(0), trace(1, **change))


def test_work_during_compilation_is_ignored() -> None:
    """A warm compilation cache launches less."""
    cold, warm = TraceBuilder(), TraceBuilder()
    cold.work(kernel("traced"), scope=COMPILING, phase=Phase.FORWARD)
    for build in (cold, warm):
        build.work(kernel("mask"))
        build.work(kernel("fused"), scope="model", phase=Phase.FORWARD)
        build.step()
    assert alike(cold.trace(), warm.trace())


def set_up(kept: int, kernels: int) -> Trace:
    """Some kernels and allocations before the first forward pass."""
    build = TraceBuilder(Manifest(world_size=2, rank=0, gpu="", gpus_per_node=2, script=""))
    for _ in range(kernels):
        build.work(kernel("seed"), phase=Phase.OTHER)
    build.alloc(4096, kept)
    build.work(kernel("forward"), phase=Phase.FORWARD)
    build.step()
    return build.trace()


def test_kernels_before_the_first_forward_pass_are_ignored() -> None:
    assert alike(set_up(kept=1 << 30, kernels=1), set_up(kept=1 << 30, kernels=9))


def test_memory_held_after_set_up_is_compared() -> None:
    """With uneven shards, one rank has larger weights."""
    assert not alike(set_up(kept=1 << 30, kernels=1), set_up(kept=(1 << 30) + (8 << 20), kernels=1))


@pytest.mark.parametrize(
    ("bytes_", "others", "same"),
    [
        (16416768, 16777216, True),  # less than 1 MiB of a free 16 MiB block would remain: it is not split
        (16416768, 18 << 20, False),
        (1 << 20, (1 << 20) + 512, False),  # small blocks are always split
        (4096, 4608, False),
        (1 << 40, (1 << 40) + (2 << 20), False),
    ],
)
def test_the_allocator_may_leave_a_large_block_unsplit(bytes_: int, others: int, same: bool) -> None:
    assert alike(trace(size=bytes_), trace(size=others)) == same


def test_unsplit_blocks_may_be_left_by_set_up() -> None:
    assert alike(set_up(kept=1 << 30, kernels=1), set_up(kept=(1 << 30) + (3 << 20), kernels=1))


@pytest.mark.parametrize(("others", "same"), [(1_005_000_000, True), (1_030_000_000, False)])
def test_optimizer_kernels_may_differ_by_a_percent(others: int, same: bool) -> None:
    """Megatron's first tensor parallel rank includes replicated parameters in the gradient norm."""
    found = []
    for moved, tensors in ((1_000_000_000, 7), (others, 13)):
        build = TraceBuilder()
        norm = Optimizer(bytes_read=moved, bytes_written=4, elements=moved // 4, dtype="float32", fused_tensors=tensors)
        build.work(norm, phase=Phase.FORWARD)
        build.step()
        found.append(build.trace())
    assert alike(*found) == same


def test_streams_are_compared() -> None:
    one = trace()
    columns = dict(one.columns) | {"stream": one.columns["stream"] * 0}
    assert not alike(one, dataclasses.replace(one, columns=columns))


def waits(operator: str) -> Trace:
    build = TraceBuilder()
    build.work(kernel("forward"), phase=Phase.FORWARD)
    build.event_sync(0, operator=operator)
    build.step()
    return build.trace()


def test_event_waits_of_the_script_are_compared_and_those_of_the_allocator_ignored() -> None:
    without = TraceBuilder()
    without.work(kernel("forward"), phase=Phase.FORWARD)
    without.step()
    assert alike(without.trace(), waits("aten::bmm"))
    assert not alike(without.trace(), waits(""))


def communicating(rank: int, *calls: Collective, exit: str = "stopped", ranks: tuple[int, ...] = (0, 1, 2, 3)) -> Trace:
    """A rank with these collectives before its first forward pass."""
    group = Group("world", ranks, len(ranks))
    manifest = Manifest(world_size=4, rank=rank, gpu="", gpus_per_node=4, script="", groups=(group,), exit=exit)
    build = TraceBuilder(manifest)
    for call in calls:
        build.work(call, phase=Phase.OTHER)
    build.work(kernel("forward"), phase=Phase.FORWARD)
    build.step()
    return build.trace()


REDUCE = Collective("all_reduce", 8, "float32", 0)


def test_collectives_are_compared_from_the_start_of_the_script() -> None:
    """An extra barrier during set-up would make the job hang."""
    assert not alike(communicating(0, REDUCE), communicating(1, REDUCE, REDUCE))


def test_messages_are_compared_by_the_distance_to_their_peer() -> None:
    """In a ring, each rank sends to the next one."""
    send = [Collective("send", 8, "float32", 0, peer=peer) for peer in range(4)]
    assert alike(communicating(0, send[1]), communicating(2, send[3]))
    assert not alike(communicating(0, send[1]), communicating(2, send[1]))


def test_roots_are_compared_as_ranks_of_the_group() -> None:
    roots = [Collective("broadcast", 8, "float32", 0, peer=peer) for peer in range(2)]
    assert alike(communicating(0, roots[0]), communicating(2, roots[0]))
    assert not alike(communicating(0, roots[0]), communicating(2, roots[1]))


def test_communicators_are_compared_by_the_distances_between_members() -> None:
    assert alike(communicating(0, REDUCE, ranks=(0, 2)), communicating(1, REDUCE, ranks=(1, 3)))
    assert not alike(communicating(0, REDUCE, ranks=(0, 2)), communicating(1, REDUCE, ranks=(1, 2)))


def test_the_exit_is_compared() -> None:
    one, other = communicating(0), communicating(1, exit="ok")
    assert not alike(one, other)
    difference = fingerprint(one).first_difference(fingerprint(other))
    assert difference is not None
    assert describe_difference(one, other, difference) == "rank 1 ends after 1 step and rank 0 is stopped after 1 step"


def test_the_first_difference_is_described() -> None:
    one, other = trace(0), trace(3, message=16)
    entry = fingerprint(one).first_difference(fingerprint(other))
    assert entry == 2
    assert (
        describe_difference(one, other, entry)
        == "rank 3 differs from rank 0 at entry 2 of rank 0 (all_reduce of 8 bytes)"
    )
    assert describe_difference(one, other, 0).endswith("at entry 0 of rank 0 (allocation of 64 bytes)")
    assert describe_difference(one, other, 1).endswith("at entry 1 of rank 0 (kernel in layer 0)")
    assert describe_difference(one, other, 3).endswith("at entry 3 of rank 0 (step)")
    longer = fingerprint(trace(steps=1)).first_difference(fingerprint(trace(3)))
    assert longer == LENGTH_DIFFERS
    assert describe_difference(one, other, LENGTH_DIFFERS) == "rank 3 continues after rank 0 has ended"
    fuller = set_up(kept=2 << 30, kernels=1)
    found = fingerprint(set_up(kept=1 << 30, kernels=1)).first_difference(fingerprint(fuller))
    assert found == MEMORY_DIFFERS
    assert describe_difference(set_up(kept=1 << 30, kernels=1), fuller, MEMORY_DIFFERS) == (
        "rank 0 holds 2.00 GiB when its first forward pass begins, rank 0 1.00 GiB"
    )


def test_an_unnamed_group_is_compared_by_its_size() -> None:
    """PyTorch numbers groups without a description, differently on each rank."""
    one, other = (
        dataclasses.replace(found, manifest=msgspec.structs.replace(found.manifest, groups=(Group(name, (0, 1), 2),)))
        for found, name in ((trace(0), "group 3"), (trace(0), "group 5"))
    )
    assert alike(one, other)


def test_a_rank_that_was_killed_is_not_as_those_that_were_stopped_for_it() -> None:
    """Such as by the kernel, when the ranks that run at once need more memory than the machine has."""
    killed, stopped = (
        dataclasses.replace(ended, manifest=msgspec.structs.replace(ended.manifest, exit="killed", error=error))
        for ended, error in ((trace(2), "the script's process ended with SIGKILL"), (trace(0), STOPPED_WITH_ANOTHER))
    )
    entry = fingerprint(stopped).first_difference(fingerprint(killed))
    assert entry is not None
    text = describe_difference(stopped, killed, entry)
    assert text == "rank 2 is killed after 2 steps and rank 0 is stopped with another after 2 steps"
