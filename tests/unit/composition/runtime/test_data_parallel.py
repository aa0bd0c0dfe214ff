"""Flavours of data parallelism: the same products, and as many bytes as their papers say."""

from __future__ import annotations

from collections import Counter

import pytest

from presim import hardware
from presim.composition.compose import compose
from presim.composition.plan import Plan
from presim.errors import InputError
from presim.trace.schema import Kind, Trace
from presim.trace.signatures import Attention, Collective, Gemm
from presim.trace.trace_invariants import check
from support.models import llama

pytestmark = pytest.mark.torch_cuda
CLUSTER = hardware.choose_cluster(gpu="h100-sxm", world_size=8)


def made(**plan: object) -> Trace:
    trace = compose(llama(), Plan(sequence=256, **plan), CLUSTER).traces[0]  # type: ignore[arg-type]
    check(trace)
    return trace


def work(trace: Trace) -> tuple[int, Counter[str]]:
    """FLOPs of the last step, and the bytes of each kind of collective; norms left out."""
    chosen = trace.columns["signature"][trace.steps()[-1]]
    flops, found = 0, Counter[str]()
    for index in chosen[chosen >= 0].tolist():
        one = trace.signatures[index]
        flops += one.flops if isinstance(one, (Gemm, Attention)) else 0
        if isinstance(one, Collective) and one.bytes > 4096:
            found[one.kind] += one.bytes
    return flops, found


def test_every_flavour_does_the_same_products() -> None:
    plans = [{"data_style": style} for style in ("fsdp2", "ddp", "zero1")] + [{"data_style": "hsdp", "shard": 2}]
    assert len({work(made(global_batch=16, **plan))[0] for plan in plans}) == 1  # type: ignore[arg-type]


def test_ddp_reduces_every_gradient_once_a_step() -> None:
    for batches in (8, 24):
        assert work(made(data_style="ddp", global_batch=batches))[1] == {"all_reduce": 2 * llama().parameter_count()}


@pytest.mark.parametrize("overlap", [True, False])
def test_zero1_scatters_gradients_in_fp32_and_gathers_parameters(overlap: bool) -> None:
    count = llama().parameter_count()
    assert work(made(data_style="zero1", overlap=overlap))[1] == {"reduce_scatter": 4 * count, "all_gather": 2 * count}


def test_replicas_reduce_what_shards_have_summed() -> None:
    found = work(made(data_style="hsdp", shard=2))[1]
    assert found["all_reduce"] == 4 * llama().parameter_count() // 2
    assert found["reduce_scatter"] == 4 * llama().parameter_count()
    assert work(made(data_style="hsdp", shard=8))[1] == work(made())[1]


def test_shards_that_do_not_divide_are_refused() -> None:
    sentence = r"^shard = 3 does not divide 8 data-parallel ranks; degrees that do: 1, 2, 4, 8 \(--shard\)$"
    with pytest.raises(InputError, match=sentence):
        made(data_style="hsdp", shard=3)


def test_replicas_without_a_number_of_shards_are_refused() -> None:
    sentence = (
        r"^data_style hsdp needs shard, the number of ranks that hold one copy of the parameters; degrees that "
        r"divide 8 data-parallel ranks: .*\b8\b.* \(--shard\)$"
    )
    with pytest.raises(InputError, match=sentence):
        made(data_style="hsdp")


def test_parameters_that_stay_gathered_are_gathered_once_a_micro_batch() -> None:
    """Without --no-reshard blocks are gathered again for the backward pass; neither way is anything left over."""
    stays, again = (work(made(reshard=reshard, global_batch=16))[1]["all_gather"] for reshard in (False, True))
    assert stays == 2 * 2 * llama().parameter_count()
    assert again > 1.5 * stays
    few, many = (made(reshard=False, global_batch=batch) for batch in (16, 48))
    assert most_held(few) == most_held(many)


def most_held(trace: Trace) -> int:
    """Bytes of blocks at their peak."""
    kind, size = trace.columns["kind"], trace.columns["value"].astype(int)
    return int((((kind == Kind.ALLOC).astype(int) - (kind == Kind.FREE).astype(int)) * size).cumsum().max())
