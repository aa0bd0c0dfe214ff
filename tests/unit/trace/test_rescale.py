"""A captured job at another degree of data parallelism."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.errors import InputError
from presim.trace.builder import TraceBuilder
from presim.trace.representatives import Representatives
from presim.trace.rescale import at_world_size, data_parallel, rescaled
from presim.trace.schema import Group, Manifest, Phase, Trace
from presim.trace.signatures import Collective

GRADIENTS = Collective("all_reduce", 1 << 20, "float32", group=1)


def job(rank: int = 0, tensor: int = 2, data: int = 4, stages: int = 2, kind: str = "all_reduce") -> Trace:
    """One rank of TP x DP x PP, data parallelism in the middle, as Megatron places them."""
    low, high = rank % tensor, rank // (tensor * data)
    ranks = (
        tuple(range(rank - low, rank - low + tensor)),
        tuple(low + tensor * (place + data * high) for place in range(data)),
        tuple(rank % (tensor * data) + tensor * data * stage for stage in range(stages)),
        tuple(range(tensor * data * stages)),
    )
    groups = tuple(Group(f"g{index}", each, len(each)) for index, each in enumerate(ranks))
    world = tensor * data * stages
    build = TraceBuilder(
        Manifest(world_size=world, rank=rank, gpu="h100-sxm", gpus_per_node=8, script="", groups=groups)
    )
    build.work(Collective("all_reduce", 1 << 16, "bfloat16", group=0), phase=Phase.FORWARD)
    build.work(Collective("send", 1 << 16, "bfloat16", group=2, peer=1 - high), phase=Phase.FORWARD)
    build.work(Collective(kind, 1 << 20, "float32", group=1), phase=Phase.BACKWARD)
    build.work(Collective("all_reduce", 4, "float32", group=3), phase=Phase.OPTIMIZER)
    return build.trace()


@given(st.integers(1, 3), st.integers(2, 5), st.integers(2, 3), st.integers(2, 9))
def test_a_re_scaled_job_is_the_one_of_that_size(tensor: int, data: int, stages: int, size: int) -> None:
    """Rank for rank the traces are what the program would have done there, and everybody has a voice."""
    captured = [job(stage * tensor * data, tensor, data, stages) for stage in range(stages)] if tensor > 1 else []
    if not captured:
        return
    every = {
        trace.manifest.rank: [trace.manifest.rank + other for other in range(1, tensor * data)] for trace in captured
    }
    found, speak = rescaled(captured, every, size)
    wanted = [job(stage * tensor * size, tensor, size, stages) for stage in range(stages)]
    for one, other in zip(found, wanted, strict=True):
        assert one.manifest == other.manifest
        assert one.signatures == other.signatures
        assert all((one.columns[name] == other.columns[name]).all() for name in one.columns)
    voices = Representatives([trace.manifest.rank for trace in found], speak)
    assert voices.represented == tensor * size * stages
    assert all(rank // (tensor * size) * tensor * size == voices.of([rank])[0] for rank in range(voices.represented))


def test_the_data_parallel_digit_is_that_of_gradients() -> None:
    assert data_parallel([job()]) == data_parallel([job(9)])
    assert (data_parallel([job()]).stride, data_parallel([job()]).size) == (2, 4)


def test_shards_of_other_sizes_have_to_be_captured() -> None:
    refused = "the reduce_scatter over the 4 ranks of 'g1' .*; capture it with --world-size"
    with pytest.raises(InputError, match=rf"{refused} 32$"):
        rescaled([job(kind="reduce_scatter")], {}, 8)
    two_captures = "or with --world-size 32 --save DIR, and use `presim replan JOB --wider DIR --world-size 64`"
    with pytest.raises(InputError, match=rf"{refused} 64, {two_captures}$"):
        rescaled([job(kind="reduce_scatter")], {}, 16)


def test_a_world_that_no_data_parallelism_makes_is_refused() -> None:
    with pytest.raises(InputError, match="the model takes 4 ranks and 18 is no multiple of it"):
        at_world_size([job()], {}, 18)


def test_a_captured_rank_must_have_a_place() -> None:
    with pytest.raises(InputError, match="rank 6, which was captured, has no place in 2 data-parallel ranks"):
        rescaled([job(6)], {}, 2)


def test_ranks_beyond_a_last_one_of_its_own_kind_are_unknown() -> None:
    """Rank 6 is the last of four data-parallel ones and does otherwise than those in the middle."""
    with pytest.raises(InputError, match="the last of 4 data-parallel ranks does not do as the middle one"):
        rescaled([job(), job(6)], {0: [2, 4]}, 8)
