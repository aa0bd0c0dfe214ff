"""What the kernels of a step are for."""

from __future__ import annotations

from presim.trace.builder import TraceBuilder, default_manifest
from presim.trace.signatures import Attention, Collective, Elementwise, Fused, Gemm, GroupedGemm, Signature, Softmax
from presim.verbs.step_kernels import is_expert_work

ATTENTION = Attention("forward", 4, 32, 4, 1, 256, 128, 128, True, "bfloat16", "flash3", paged=True)
TRITON = Fused(name="kernel_unified_attention", bytes_read=1, bytes_written=1, elements=1, dtype="int8")
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
    return [int(place) for place in is_expert_work(trace.trace()).nonzero()[0]]


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


def test_the_all_reduce_behind_experts_is_theirs_vllm_s_own_as_nccl_s() -> None:
    """The one behind attention is not, nor the next layer's."""
    for reduced in (pointwise("_C_custom_ar::all_reduce"), Collective("all_reduce", 4096, "bfloat16", 0)):
        for attends in (ATTENTION, TRITON):
            assert kept(attends, PRODUCT, reduced, EXPERTS, EXPERTS, reduced, attends, PRODUCT, reduced) == [3, 4, 5]
            assert kept(EXPERTS, EXPERTS, attends, reduced) == [0, 1]
