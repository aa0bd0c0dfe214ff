"""Two captures of a job say what more ranks do: sizes stay, or are shares of one whole; anything else is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from presim.composition.replan.rank_laws import RankNumbers
from presim.composition.replan.replan_ranks import with_ranks
from presim.errors import InputError
from presim.trace.builder import TraceBuilder, default_manifest
from presim.trace.schema import Category, Group, Kind, Manifest, Phase, Trace
from presim.trace.signatures import Collective, Elementwise, Signature

WEIGHT_BYTES = 1 << 26
Sharded = Callable[[int], int]


def share(ranks: int) -> int:
    return WEIGHT_BYTES // ranks


def manifest_of(ranks: int, tensor: int) -> Manifest:
    import msgspec

    world = ranks * tensor
    groups = (
        Group("world", tuple(range(world)), world),
        Group("tp", tuple(range(tensor)), tensor),
        Group("dp", tuple(range(0, world, tensor)), ranks),
    )
    return msgspec.structs.replace(
        default_manifest(),
        world_size=world,
        groups=groups,
        model={"parameters": WEIGHT_BYTES // 4, "parameters_local": share(ranks) // 4},
        batch={"tokens": 512, "data_parallel_ranks": ranks},
    )


def captured(ranks: int, shard_bytes: Sharded = share, *, tensor: int = 1, launches: int = 1) -> Trace:
    """Sharded parameters: gathered, used, reduce-scattered and updated, in two steps."""
    build = TraceBuilder(manifest_of(ranks, tensor))
    size = shard_bytes(ranks)

    def work(signature: Signature, phase: Phase) -> None:
        build.work(signature, phase=phase, operator="work", scope="model")

    build.segment(1 << 30, 1 << 28)
    build.alloc(1 << 30, size, category=Category.PARAMETER, scope="model")
    for _ in range(2):
        build.alloc((1 << 30) + (1 << 27), WEIGHT_BYTES, scope="gathered")
        work(Collective("all_gather", WEIGHT_BYTES, "bfloat16", group=2), Phase.FORWARD)
        work(Elementwise(WEIGHT_BYTES, WEIGHT_BYTES, WEIGHT_BYTES // 2, "bfloat16"), Phase.FORWARD)
        work(Collective("reduce_scatter", WEIGHT_BYTES, "float32", group=2), Phase.BACKWARD)
        build.free((1 << 30) + (1 << 27), WEIGHT_BYTES)
        for _ in range(launches):
            work(Elementwise(size, size, size // 4, "float32"), Phase.OPTIMIZER)
        build.step()
    return build.trace()


def at(ranks: int, fewer: Trace, more: Trace, tensor: int = 1) -> tuple[Trace, dict[int, list[int]], str]:
    world = more.manifest.world_size
    (trace,), stands_for, (sentence, *_) = with_ranks([fewer], [more], {0: list(range(1, world))}, ranks * tensor)
    return trace, stands_for, sentence


@pytest.mark.parametrize(("ranks", "tensor"), [(16, 1), (64, 1), (1024, 1), (32, 4), (256, 2)])
def test_a_job_on_more_ranks_is_as_if_it_were_captured(ranks: int, tensor: int) -> None:
    trace, stands_for, sentence = at(ranks, captured(8, tensor=tensor), captured(16, tensor=tensor), tensor)
    expected = captured(ranks, tensor=tensor)
    assert trace.manifest.groups == expected.manifest.groups
    assert trace.manifest.world_size == expected.manifest.world_size
    assert trace.manifest.model == expected.manifest.model
    assert trace.manifest.batch == expected.manifest.batch
    assert work_of(trace) == work_of(expected)
    assert sizes_of(trace) == sizes_of(expected)
    assert sorted(stands_for[0]) == list(range(1, ranks * tensor))
    assert sentence.startswith(f"Extended from 16 to {ranks} ranks of 'dp'" if tensor > 1 else "Extended from 16 to")


def work_of(trace: Trace) -> list[Signature]:
    numbers = trace.columns["signature"][trace.mask(Kind.WORK, Kind.COLLECTIVE)]
    return [trace.signatures[number] for number in numbers.tolist()]


def sizes_of(trace: Trace) -> list[int]:
    sizes: list[int] = trace.columns["value"][trace.mask(Kind.ALLOC)].tolist()
    return [max(size, 512) for size in sizes]


def test_a_size_without_a_law_is_refused_by_name() -> None:
    def constant_beside(ranks: int) -> int:
        return share(ranks) + (1 << 22)

    with pytest.raises(InputError, match=r"bytes of ALLOC model \(entry 1\) are 12,582,912 with 8 ranks and 8,388,608"):
        at(64, captured(8, constant_beside), captured(16, constant_beside))


def test_a_small_block_of_several_tensors_keeps_its_bytes_where_it_shrinks_only() -> None:
    """A share beside a constant follows no law; it is an upper bound where more ranks have less."""
    shares, growing = (lambda ranks: 9_216 + (1 << 18) // ranks), (lambda ranks: 9_216 + 512 * ranks)
    trace, _, _ = at(64, captured(8, shares), captured(16, shares))
    assert trace.columns["value"][trace.mask(Kind.ALLOC)][0] == shares(16)
    with pytest.raises(InputError, match="which is neither the same nor a share of one whole"):
        at(64, captured(8, growing), captured(16, growing))


def test_a_block_that_the_allocator_did_not_split_is_a_share_still() -> None:
    """Blocks above a MiB may be up to a MiB larger than asked for, smaller ones only 512 bytes."""
    numbers = RankNumbers(128, 256, 1024)
    assert numbers.factor(2_621_440, 917_504, (1 << 20, 512)) == 0.25
    assert numbers.factor(2_621_440, 917_504, (512, 512)) is None
    assert numbers.factor(5_000_000, 917_504, (1 << 20, 512)) is None


def test_other_calls_are_refused_by_name() -> None:
    wider = captured(16)
    other = TraceBuilder(manifest_of(8, 1))
    other.work(Elementwise(1, 1, 1, "float32"), phase=Phase.FORWARD, operator="other")
    other.step()
    with pytest.raises(InputError, match="with 16 ranks the job does ALLOC model"):
        at(64, other.trace(), wider)


@pytest.mark.parametrize(("fewer", "more", "ranks"), [(16, 16, 64), (16, 8, 64), (8, 16, 8)])
def test_captures_in_the_wrong_order_are_refused(fewer: int, more: int, ranks: int) -> None:
    with pytest.raises(InputError, match=r"give --wider a capture with more|cannot be cut to 8"):
        at(ranks, captured(fewer), captured(more))


def test_captures_whose_tensor_parallelism_differs_are_refused() -> None:
    with pytest.raises(InputError, match="groups of one kind have to grow"):
        at(64, captured(8, tensor=1), captured(16, tensor=2))
