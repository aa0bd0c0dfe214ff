"""PyTorch's own compute-bound kernels."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from presim.capture.reading import compute_kernels
from presim.capture.reading.launch_operators import parse_operator
from presim.capture.reading.log import parse
from presim.trace.signatures import Attention, Gemm, GroupedGemm, Signature

FLASH = "kernel name=flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel grid=1,1,1 block=1,1,1"
EFFICIENT = "kernel name=fmha_cutlassF_bf16_aligned_64x128_rf_sm80 grid=1,1,1 block=1,1,1"


def kernel(text: str, operator: str) -> Signature | None:
    return compute_kernels.signature(parse(text), parse_operator(parse(operator)))


def test_attention_backward_takes_its_shapes_after_the_gradient() -> None:
    tensors = "BFloat16[2;4096;32;128],BFloat16[2;4096;32;128],BFloat16[2;4096;8;128],BFloat16[2;4096;8;64]"
    found = kernel(FLASH, f"op name=aten::_flash_attention_backward in={tensors} out= args=4096,4096,0")
    assert found == Attention("backward", 2, 32, 8, 4096, 4096, 128, 64, False, "bfloat16", "flash")


def test_efficient_attention_is_causal_by_its_mask_type() -> None:
    tensors = "BFloat16[2;100;4;64],BFloat16[2;300;4;64],BFloat16[2;300;4;64]"
    found = kernel(EFFICIENT, f"op name=aten::_efficient_attention_forward in={tensors} out= args=1,1")
    assert found == Attention("forward", 2, 4, 4, 100, 300, 64, 64, True, "bfloat16", "efficient")


def test_small_kernels_of_attention_and_grouped_products_are_not_the_product() -> None:
    tensors = "BFloat16[2;100;4;64],BFloat16[2;300;4;64],BFloat16[2;300;4;64]"
    assert kernel("kernel name=fill", f"op name=aten::_flash_attention_forward in={tensors} out= args=") is None
    assert kernel("kernel name=prepare_offsets", "op name=aten::_grouped_mm in=BFloat16[4;2] out= args=") is None


def test_groups_are_counted_by_offsets_if_both_matrices_are_flat() -> None:
    """The weight gradient of a grouped product: [k, rows] times [rows, n], cut by offsets."""
    text = "op name=aten::_grouped_mm in=BFloat16[512;4096],BFloat16[4096;1024],Int[8] out=BFloat16[8;512;1024] args="
    assert kernel("kernel name=cutlass_gemm", text) == GroupedGemm(8, 8 * 512, 1024, 512, "bfloat16")


def test_experts_without_tokens_have_a_product_of_zero_depth() -> None:
    text = "op name=aten::_grouped_mm in=BFloat16[512;0],BFloat16[0;1024],Int[8] out=BFloat16[8;512;1024] args="
    assert kernel("kernel name=cutlass_gemm", text) == GroupedGemm(8, 8 * 512, 1024, 0, "bfloat16")


def test_a_row_scaled_product_without_cublas_is_recognised() -> None:
    tensors = "Float8_e4m3fn[4096;1024],Float8_e4m3fn[1024;2048],Float[4096;1],Float[1;2048]"
    text = f"op name=aten::_scaled_mm in={tensors} out=BFloat16[4096;2048] args=0"
    found = kernel("kernel name=_ZN7cutlass13device_kernelI grid=1,1,1 block=1,1,1", text)
    fp8 = "float8_e4m3fn"
    assert found == Gemm(4096, 2048, 1024, 1, fp8, out_dtype="bfloat16", layout="NT", scaling="outer")
    assert kernel("kernel name=fill", text) is None


UNEVEN = "args= ends=3000,3000,3100,3201"


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        ("BFloat16[8192;64],BFloat16[4;64;32],Int[4]", {"m": 3201, "n": 32, "k": 64, "along": "m"}),
        ("BFloat16[4;32;64],BFloat16[64;8192],Int[4]", {"m": 128, "n": 800, "k": 64, "along": "n"}),
        ("BFloat16[32;8192],BFloat16[8192;64],Int[4]", {"m": 128, "n": 64, "k": 800, "along": "k"}),
    ],
)
def test_groups_with_known_ends_have_sizes(tensors: str, expected: dict[str, Any]) -> None:
    """Along the divided dimension; rows after the last group belong to none."""
    found = kernel("kernel name=cutlass_gemm", f"op name=aten::_grouped_mm in={tensors} out= {UNEVEN}")
    assert found == GroupedGemm(groups=4, dtype="bfloat16", sizes=(2896, 99, 99), **expected)


def test_groups_of_similar_size_count_as_equal() -> None:
    text = "op name=aten::_grouped_mm in=BFloat16[4096;64],BFloat16[4;64;32],Int[4] out= args= ends=1000,2040,3050,4096"
    assert kernel("kernel name=cutlass_gemm", text) == GroupedGemm(4, 4096, 32, 64, "bfloat16")


@pytest.mark.parametrize("ends", ["0,0,0,0", "5,4,3,2", "10,20,30,5000"])
def test_invalid_ends_are_ignored(ends: str) -> None:
    """No ends, unsorted ends, ends beyond the rows."""
    text = f"op name=aten::_grouped_mm in=BFloat16[4096;64],BFloat16[4;64;32],Int[4] out= args= ends={ends}"
    assert kernel("kernel name=cutlass_gemm", text) == GroupedGemm(4, 4096, 32, 64, "bfloat16")


STRUCTURED = "kernel name=cutlass::device_kernel<SparseGemmRowBroadcast> grid=1,1,1 block=1,1,1"


def test_structured_products_have_the_kept_half_of_their_left_operand() -> None:
    """Values and positions come before the other operand; an added vector comes first."""
    tensors = "BFloat16[2048;512],Short[2048;64],BFloat16[1024;256]"
    product = Gemm(2048, 256, 1024, 1, "bfloat16", sparsity="2:4 a")
    out = "out=BFloat16[2048;256] args="
    assert kernel(STRUCTURED, f"op name=aten::_sparse_semi_structured_mm in={tensors} {out}") == product
    added = f"op name=aten::_sparse_semi_structured_addmm in=BFloat16[2048],{tensors} {out}"
    assert kernel(STRUCTURED, added) == msgspec.structs.replace(product, epilogue="bias")
    assert kernel("kernel name=fill grid=1,1,1 block=1,1,1", added) is None
