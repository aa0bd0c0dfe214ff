"""A plan has each measurable, unknown signature once, smallest first."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance import strategies as made
from presim import hardware
from presim.cost.profile.measurement_plan import footprint, obstacle, plan
from presim.cost.profile.sweep import standard_sweep
from presim.trace.signatures import (
    Attention,
    Collective,
    Copy,
    Elementwise,
    Fused,
    Gemm,
    GroupedGemm,
    Kernel,
    Normalization,
    Signature,
    Softmax,
    Sort,
)

GPU = hardware.gpu("h100-sxm")
GEMM = Gemm(512, 512, 512, 1, "bfloat16")
FP8 = Gemm(512, 512, 512, 1, "float8_e4m3fn", out_dtype="bfloat16", layout="NT", sums="fast")
NORM = Normalization(2048 + 512, 2048 + 64, 1024, "bfloat16", operator="aten::native_layer_norm", row=128)
FLASH = Attention("forward", 1, 8, 8, 512, 512, 64, 64, True, "bfloat16", "flash")


@settings(max_examples=30, deadline=None)
@given(st.lists(made.signatures(), max_size=12), st.data())
def test_a_plan_omits_known_and_impossible_signatures(wanted: list[Signature], data: st.DataObject) -> None:
    known = set(data.draw(st.lists(st.sampled_from(wanted), max_size=5))) if wanted else set()
    made_plan = plan(wanted + wanted, known, GPU)
    assert set(made_plan.work) == {each for each in wanted if not obstacle(each, GPU) and each not in known}
    assert len(set(made_plan.work)) == len(made_plan.work)
    assert len(made_plan.work) + made_plan.num_known >= len(set(wanted)) - sum(made_plan.omitted.values())
    assert [footprint(each) for each in made_plan.work] == sorted(footprint(each) for each in made_plan.work)


@pytest.mark.parametrize(
    ("signature", "reason"),
    [
        (GEMM, ""),
        (FLASH, ""),
        (Elementwise(2048, 1024, 512, "bfloat16", operator="aten::add"), ""),
        (Elementwise(1031, 1024, 512, "bfloat16", operator="aten::add"), "elementwise work whose operands"),
        (Elementwise(2048, 1024, 512, "bfloat16", operator="aten::roll"), "operators that are not set up: aten::roll"),
        (Elementwise(4096, 2048, 1024, "bfloat16", operator="aten::copy_"), ""),
        (Elementwise(2048, 2048, 1024, "bfloat16", operator="aten::copy_"), "elementwise work whose operands"),
        (Elementwise(0, 2048, 1024, "bfloat16", operator="aten::fill_"), ""),
        (NORM, ""),
        (msgspec.structs.replace(NORM, bytes_read=2048), "normalization work whose operands"),
        (msgspec.structs.replace(NORM, row=0), "normalization work whose operands"),
        (Softmax(8192, 4096, 1024, "float32", operator="aten::_log_softmax_backward_data", row=64), ""),
        (Softmax(4096, 4096, 1024, "float32", operator="aten::logsumexp"), "operators that are not set up"),
        (FP8, ""),
        (msgspec.structs.replace(FP8, scaling="outer", sums=""), ""),
        (msgspec.structs.replace(FP8, scaling="block"), "FP8 products that PyTorch lacks"),
        (msgspec.structs.replace(FP8, layout="TN"), "FP8 products that PyTorch lacks"),
        (msgspec.structs.replace(FP8, accumulate=True), "FP8 products that PyTorch lacks"),
        (msgspec.structs.replace(GEMM, dtype="int8"), "products of int8 other than PyTorch's own"),
        (msgspec.structs.replace(GEMM, b_dtype="float16"), "products of mixed types"),
        (msgspec.structs.replace(GEMM, out_dtype="float32"), ""),
        (msgspec.structs.replace(GEMM, out_dtype="float32", accumulate=True), ""),
        (
            msgspec.structs.replace(GEMM, dtype="float32", out_dtype="bfloat16"),
            "products of float32 with results in bfloat16",
        ),
        (msgspec.structs.replace(GEMM, compute="float16"), "products of bfloat16 that accumulate in float16"),
        (msgspec.structs.replace(GEMM, epilogue="bias"), ""),
        (msgspec.structs.replace(GEMM, epilogue="bias", batch=2), "products with an epilogue that PyTorch lacks"),
        (msgspec.structs.replace(GEMM, epilogue="dgelu_bgrad"), "products with an epilogue that PyTorch lacks"),
        (GroupedGemm(8, 4096, 512, 512, "bfloat16"), ""),
        (GroupedGemm(8, 4096, 512, 512, "float8_e4m3fn"), "grouped products of another type"),
        (msgspec.structs.replace(GEMM, m=1 << 22, n=1 << 22), "needs more memory than the card has"),
        (msgspec.structs.replace(FLASH, window=128), "attention with a window or pages"),
        (msgspec.structs.replace(FLASH, backend="flex"), "attention of another backend: flex"),
        (msgspec.structs.replace(FLASH, dropout=True), "attention with dropout"),
        (Collective("all_reduce", 8, "float32", 0), "collectives need the cluster"),
        (Copy("peer", 8), "copies to another GPU"),
        (Copy("memset", 8), "memsets"),
        (Fused("triton_poi", 8, 8, 1, "float32"), "generated kernels"),
        (Kernel("unknown", (1, 1, 1), (1, 1, 1)), "kernels known by name only"),
        (Sort(8, 8, 1, "float32"), "operators that are not set up: sort"),
    ],
)
def test_an_obstacle_is_described(signature: Signature, reason: str) -> None:
    said = obstacle(signature, GPU)
    assert said.startswith(reason)
    assert bool(said) == bool(reason)


def test_the_standard_sweep_can_be_measured_within_an_hour() -> None:
    sweep = list(standard_sweep())
    made_plan = plan(sweep, (), hardware.gpu("t4"))
    assert set(made_plan.omitted) <= {
        "needs more memory than the card has",
        "FP8 products, which this GPU does not support",
        "grouped products, for which PyTorch has no grouped kernel on this GPU",
    }
    assert 500 < len(made_plan.work) <= len(set(sweep)) < 3000
    assert plan(sweep, (), GPU).omitted == {}
