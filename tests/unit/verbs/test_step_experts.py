"""Which kernels of a step are those of routed experts."""

from __future__ import annotations

from presim.trace.builder import TraceBuilder, default_manifest
from presim.trace.signatures import Attention, Elementwise, Gemm, GroupedGemm, Signature, Softmax
from presim.verbs.step_experts import of_experts

ATTENTION = Attention("forward", 4, 32, 4, 1, 256, 128, 128, True, "bfloat16", "flash3", paged=True)
PRODUCT = Gemm(4, 2048, 4096, 1, "bfloat16")
ROUTER = Softmax(2048, 512, 512, "bfloat16", operator="_moe_C::topk_softmax", row=128)
EXPERTS = GroupedGemm(29, 32, 1536, 2048, "bfloat16")


def pointwise(operator: str) -> Elementwise:
    return Elementwise(64, 64, 32, "bfloat16", operator=operator)


def kept(*works: Signature) -> list[int]:
    """Places of the kernels that are experts'."""
    trace = TraceBuilder(default_manifest())
    for work in works:
        trace.work(work)
    return [int(place) for place in of_experts(trace.trace()).nonzero()[0]]


def test_both_products_what_is_between_and_what_the_library_does_beside_them() -> None:
    """The router is not among them: each rank chooses for its own tokens."""
    layer = (
        ATTENTION,
        PRODUCT,
        ROUTER,
        pointwise("_moe_C::moe_align_block_size"),
        EXPERTS,
        pointwise("_C::silu_and_mul"),
        EXPERTS,
        pointwise("_moe_C::moe_sum"),
    )
    assert kept(*layer, *layer) == [3, 4, 5, 6, 7, 11, 12, 13, 14, 15]


def test_without_experts_there_are_none() -> None:
    assert kept(ATTENTION, PRODUCT, pointwise("_C::silu_and_mul"), PRODUCT) == []
