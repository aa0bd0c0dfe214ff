"""Sequence, vocabulary and context parallelism: the same products, shared out, and the messages they cost."""

from __future__ import annotations

from collections import Counter

import pytest

from presim import hardware
from presim.composition.compose import compose
from presim.composition.passes import context_parallel, tensor_parallel
from presim.composition.plan import Plan
from presim.errors import InputError
from presim.trace.schema import Kind, Trace
from presim.trace.signatures import Attention, Collective, Gemm
from presim.trace.trace_invariants import check
from support.models import llama

pytestmark = pytest.mark.torch_cuda
CLUSTER = hardware.choose_cluster(gpu="h100-sxm", world_size=8)
LAYERS, SEQUENCE, HIDDEN = 4, 256, 256
ACTIVATION = 2 * SEQUENCE * HIDDEN  # bytes of bf16


def made(**plan: object) -> Trace:
    plan = {"sequence": SEQUENCE, "data_style": "zero1", **plan}
    (trace,) = compose(llama(), Plan(**plan), CLUSTER).traces  # type: ignore[arg-type]
    check(trace)
    return trace


def flops(trace: Trace) -> int:
    return sum(one.flops for one in work(trace) if isinstance(one, (Gemm, Attention)))


def work(trace: Trace) -> list[object]:
    chosen = trace.columns["signature"][trace.steps()[-1]]
    return [trace.signatures[index] for index in chosen[chosen >= 0].tolist()]


def messages(trace: Trace, group: str) -> Counter[tuple[str, int]]:
    """Collectives of a group by kind and bytes; small ones left out."""
    groups = trace.manifest.groups
    found = [one for one in work(trace) if isinstance(one, Collective) and groups[one.group].name == group]
    return Counter((one.kind, one.bytes) for one in found if one.bytes > 4096)


def peak(trace: Trace) -> int:
    """The most that live blocks hold."""
    held = most = 0
    for kind, value in zip(trace.columns["kind"].tolist(), trace.columns["value"].tolist(), strict=True):
        held += value if kind == Kind.ALLOC else -value if kind == Kind.FREE else 0
        most = max(most, held)
    return most


def test_a_degree_of_1_is_the_identity() -> None:
    assert tensor_parallel.apply(llama(), 1, sequence=True, vocabulary=True) == llama()
    assert context_parallel.apply(llama(), 1, "ulysses") == llama()


@pytest.mark.parametrize("degree", [2, 4])
def test_tensor_parallel_ranks_share_all_products(degree: int) -> None:
    """Those of the output layer as well, once the vocabulary is split."""
    whole = flops(made())
    for plan in ({"vocabulary_parallel": True}, {"sequence_parallel": True}):
        assert flops(made(tensor=degree, **plan)) * degree == whole  # type: ignore[arg-type]


def test_sequence_parallelism_gathers_before_and_scatters_after_each_pair_of_layers() -> None:
    """As Megatron: what was gathered is not kept, but gathered again for the gradients of weights."""
    found = messages(made(tensor=2, sequence_parallel=True), "tensor")
    gathers, scatters = found["all_gather", ACTIVATION], found["reduce_scatter", ACTIVATION]
    assert gathers == 2 * LAYERS + 4 * LAYERS + 3  # and output layer, its weights' gradient, the embedding's gradient
    assert scatters == 2 * LAYERS + 2 * LAYERS + 2  # and the embedding, the output layer's input
    assert peak(made(tensor=2, sequence_parallel=True)) < peak(made(tensor=2, vocabulary_parallel=True))


def test_context_parallel_ranks_share_products_and_attention() -> None:
    whole = [flops(made(context=degree)) * degree for degree in (1, 2, 4)]
    assert whole[1] == pytest.approx(whole[0], rel=0.01)  # the diagonal of the mask is half counted
    assert whole[2] == pytest.approx(whole[0], rel=0.01)
    heads = flops(made(context=4, context_style="ulysses"))
    assert heads * 4 == whole[0]


def test_keys_and_values_are_gathered_and_their_gradients_scattered() -> None:
    keys = ACTIVATION // 2  # half as many heads as queries have
    found = messages(made(context=2), "context")
    assert found == {("all_gather", keys): 2 * LAYERS, ("reduce_scatter", keys): 2 * LAYERS}


def test_heads_are_exchanged_for_tokens_and_back() -> None:
    found = messages(made(context=2, context_style="ulysses"), "context")
    assert found == {("all_to_all", ACTIVATION // 2): 4 * LAYERS, ("all_to_all", ACTIVATION // 4): 4 * LAYERS}


@pytest.mark.parametrize("degree", [2, 4, 8])
def test_a_ring_passes_keys_and_values_on_and_their_gradients_home(degree: int) -> None:
    """Each step but the last sends both forward, and backward; gradients go all the way around."""
    trace = made(context=degree, context_style="ring")
    both = ACTIVATION // degree  # keys and values have half as many heads as queries
    assert messages(trace, "context") == {("send_recv", both): (2 * (degree - 1) + degree) * LAYERS}
    assert flops(trace) * degree == pytest.approx(flops(made()), rel=0.03)


def test_attention_in_a_ring_computes_while_it_sends() -> None:
    """The compute stream waits for keys and values only after the attention that runs meanwhile."""
    trace = made(context=4, context_style="ring")
    kinds, signatures = trace.columns["kind"].tolist(), trace.columns["signature"].tolist()
    sent = [place for place, index in enumerate(signatures) if _is_message(trace, index)]
    for place in sent[:3]:
        following = zip(kinds[place + 1 :], signatures[place + 1 :], trace.columns["stream"][place + 1 :].tolist())
        first = next(
            index if kind == Kind.WORK else None
            for kind, index, stream in following
            if stream == 0 and kind in (Kind.WORK, Kind.STREAM_WAIT)
        )
        assert first is not None
        assert isinstance(trace.signatures[first], Attention)


def _is_message(trace: Trace, index: int) -> bool:
    one = trace.signatures[index] if index >= 0 else None
    return isinstance(one, Collective) and one.kind == "send_recv"


def test_all_of_it_together_is_a_job() -> None:
    plan = Plan(
        sequence=SEQUENCE,
        tensor=2,
        sequence_parallel=True,
        context=2,
        pipeline=2,
        global_batch=4,
        recompute="full",
        data_style="zero1",
    )
    for trace in compose(llama(), plan, CLUSTER).traces:
        check(trace)


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        ({"context": 8, "context_style": "ulysses"}, r"context = 8 does not divide 4 heads of attention"),
        (
            {"context": 8, "context_style": "ring", "sequence": 264},
            r"^the sequence of 264 tokens does not split into 16 equal pieces, two per rank of a ring "
            r"\(264 % 16 = 8\); "
            r"lengths that do: 224, 240, 256, 272$",
        ),
        ({"context": 3}, r"context = 3 does not divide 8 GPUs \(8 % 3 = 2\)|context = 3 is odd"),
    ],
)
def test_what_does_not_divide_is_refused(plan: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        made(**plan)


def test_a_sequence_that_has_no_equal_parts_is_refused() -> None:
    with pytest.raises(InputError, match=r"^the sequence of 257 tokens does not split into 2 equal parts"):
        compose(llama(), Plan(sequence=257, context=2), CLUSTER)
