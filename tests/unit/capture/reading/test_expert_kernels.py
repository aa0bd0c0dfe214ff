"""The products of routed experts in vLLM's Triton kernel."""

from __future__ import annotations

import pytest

from presim.capture.reading.classify import classify_launch
from presim.capture.reading.launch_operators import parse_operator
from presim.capture.reading.log import parse
from presim.trace.signatures import Elementwise, Fused, GroupedGemm, Signature


def launched(tokens: int, name: str = "triton::fused_moe_kernel") -> Signature:
    """The first product of Qwen3-30B-A3B's experts, of which the code's analysis saw a read of 4 bytes."""
    places = f"Int[{tokens * 8 + 100}],Int[40],Int[1]"
    tensors = f"Float8_e4m3fn[{tokens};2048],Float8_e4m3fn[128;1536;2048],BFloat16[{tokens};8;1536]"
    said = "out= args= moved=4,0 instructions=9,0,0 programs=9"
    text = f"op name={name} in={tensors},Float[{tokens};16],Float[128;12;16],{places} {said}"
    return classify_launch(parse("kernel name=moe grid=9,1,1 block=64,1,1"), parse_operator(parse(text)), 1.0)


@pytest.mark.parametrize(("tokens", "used"), [(1, 8), (8, 52), (512, 128)])
def test_weights_of_chosen_experts_are_read_and_each_token_is_multiplied_by_its_own(tokens: int, used: int) -> None:
    """With few tokens, experts that no token chose are not read."""
    found = launched(tokens)
    assert isinstance(found, GroupedGemm)
    assert (found.groups, found.m, found.n, found.k) == (used, 8 * tokens, 1536, 2048)
    assert found.flops == 2 * 8 * tokens * 1536 * 2048
    assert found.dtype.startswith("float8")
    assert found.out_dtype == "bfloat16"


def test_other_kernels_keep_what_the_analysis_of_their_code_found() -> None:
    found = launched(4, "triton::other_kernel")
    assert isinstance(found, Fused)
    assert found.bytes_read == 4


def test_mxfp4_weights_are_unpacked_by_triton_kernels() -> None:
    """Both products of gpt-oss-120b on two GPUs for 24 tokens that choose 4 of 128 experts each; the first is gated."""
    places = "Int[96],Int[128],Int[129],Int[],Int[96]"
    for tensors, n, k in (
        ("BFloat16[1;96;1472],BFloat16[1;24;2880],Byte[128;5760;736],Float[128;2944]", 2944, 2880),
        ("BFloat16[1;96;2880],BFloat16[1;96;1472],Byte[128;2944;720],Float[128;2880],BFloat16[96]", 2880, 1472),
    ):
        text = f"op name=triton::_matmul_ogs in={tensors},{places} out= args= moved=9,0 instructions=9,0,0 programs=9"
        found = classify_launch(parse("kernel name=moe grid=9,1,1 block=64,1,1"), parse_operator(parse(text)), 1.0)
        assert isinstance(found, GroupedGemm)
        assert (found.groups, found.m, found.n, found.k, found.b_dtype) == (68, 96, n, k, "float4_e2m1fn_x2")


def by_library(name: str, inputs: str, out: str, kernel: str, writes: str = "") -> Signature:
    text = f"op name={name} in={inputs} out={out} args= {writes}"
    return classify_launch(parse(f"kernel name={kernel} grid=9,1,1 block=64,1,1"), parse_operator(parse(text)), 1.0)


@pytest.mark.parametrize(("factors", "b_dtype"), [("BFloat16", "uint4"), ("Float8_e8m0fnu", "float4_e2m1fn_x2")])
def test_marlin_s_experts_are_those_that_any_token_chose(factors: str, b_dtype: str) -> None:
    """16 tokens choose 8 of 128 experts each: 82 are in use."""
    inputs = (
        f"BFloat16[16;2048],BFloat16[128;1536],Int[128;128;3072],{factors}[128;16;1536],Int[528],Int[1024],Int[128],"
        "Int[1],Float[16;8]"
    )
    found = by_library("_moe_C::moe_wna16_marlin_gemm", inputs, "BFloat16[128;1536]", "marlin_moe_wna16::Marlin")
    assert isinstance(found, GroupedGemm)
    assert (found.groups, found.m, found.n, found.k, found.b_dtype) == (82, 128, 1536, 2048, b_dtype)


def test_cutlass_multiplies_the_chosen_experts_in_fp4_and_sets_up_their_groups_in_another_kernel() -> None:
    """32 choices among 128 experts, weights of 1536 x 2048."""
    inputs = "BFloat16[32;1536],Byte[32;1024],Byte[128;1536;1024],Float8_e4m3fn[99;128],Int[128;3]"
    product, beside = (
        by_library("_C::cutlass_fp4_group_mm", inputs, "", kernel, "writes=0!")
        for kernel in ("cutlass::GemmUniversal", "get_group_gemm_starts<cutlass::float_e2m1_t>")
    )
    assert isinstance(product, GroupedGemm)
    assert (product.groups, product.m, product.n, product.k) == (28, 32, 1536, 2048)
    assert (product.dtype, product.out_dtype) == ("float4_e2m1fn_x2", "bfloat16")
    assert not isinstance(beside, GroupedGemm)


def test_a_cast_writes_its_own_rows_and_not_the_whole_buffer_of_factors() -> None:
    """The factors' buffer has room for 40 million."""
    inputs = "BFloat16[32;2048],Float[128],Int[129],Byte[32;1024],Int[163840;256]"
    found = by_library("_C::scaled_fp4_experts_quant", inputs, "", "cvt_fp16_to_fp4", "writes=3!,4!")
    assert isinstance(found, Elementwise)
    assert (found.bytes_read, found.bytes_written) == (32 * 2048 * 2, 32 * 1024 + 32 * 128)
