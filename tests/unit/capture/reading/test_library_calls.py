"""Signatures of library calls."""

from __future__ import annotations

import pytest

from presim.capture.reading import library_calls
from presim.capture.reading.launch_operators import LaunchingOperator, parse_operator
from presim.capture.reading.log import parse
from presim.trace.dtypes import dtype_bytes
from presim.trace.signatures import (
    Attention,
    Convolution,
    Copy,
    Elementwise,
    Fused,
    Gemm,
    GroupedGemm,
    Kernel,
    Signature,
    SparseProduct,
)


def call(text: str, by: LaunchingOperator | None = None) -> Signature:
    return library_calls.signature(parse(text), by)


def test_a_column_major_product_is_the_swapped_row_major_product() -> None:
    """cuBLAS's column-major D[m, n] = A B is row-major D[n, m] = B A: sizes, operands and layouts swap."""
    text = "gemm m=14336 n=8192 k=4096 batch=1 a=bf16 b=f16 d=f32 compute=f32 transa=T transb=N beta=0 epilogue=none"
    assert call(text) == Gemm(
        m=8192, n=14336, k=4096, batch=1, dtype="float16", b_dtype="bfloat16", out_dtype="float32", layout="NT"
    )


def test_a_product_of_one_type_names_it_once() -> None:
    gemm = call("gemm m=2 n=3 k=4 batch=5 a=f32 b=f32 d=f32 compute=tf32 transa=N transb=C beta=1 epilogue=gelu_bias")
    assert gemm == Gemm(3, 2, 4, 5, "float32", "tf32", layout="TN", accumulate=True, epilogue="gelu_bias")


def test_the_sparse_operand_swaps_with_the_order_of_the_operands() -> None:
    text = "gemm m=512 n=64 k=128 batch=1 a=bf16 b=bf16 d=bf16 transa=N transb=N beta=0 sparse=2:4 sparse_operand="
    assert call(text + "b") == Gemm(64, 512, 128, 1, "bfloat16", sparsity="2:4 a")
    assert call(text + "a") == Gemm(64, 512, 128, 1, "bfloat16", sparsity="2:4 b")


SPARSE = "m=100 n=16 k=200 nnz=600 other=0 result=0 batch=2 dtype=f16 format=coo index_bytes=8 block=1"


def test_a_product_of_cusparse_has_sizes_and_nonzeros() -> None:
    expected = SparseProduct("spmm", 100, 16, 200, 600, 2, "float16", "coo", 8)
    assert call(f"sparse_product operation=spmm {SPARSE}") == expected


def test_a_triangular_solve_has_flops_and_no_formula() -> None:
    """Its rows depend on each other in chains whose length is data."""
    expected = SparseProduct("spmm", 100, 16, 200, 600, 2, "float16", "coo", 8)
    solve = call(f"sparse_product operation=spsm {SPARSE}")
    assert solve == Kernel("cusparseSpSM_solve", (1, 1, 1), (1, 1, 1), bytes=expected.bytes, flops=2 * 600 * 16 * 2)


def test_a_call_without_batch_is_one_product() -> None:
    gemm = call("gemm m=2 n=3 k=4 batch=0 a=f32 b=f32 d=f32")
    assert isinstance(gemm, Gemm)
    assert gemm.batch == 1


def test_a_grouped_product_has_the_rows_of_all_groups() -> None:
    assert call("grouped_gemm groups=8 m=1024 n=4096 k=512 a=bf16") == GroupedGemm(8, 4096, 1024, 512, "bfloat16")


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_attention_of_cudnn(direction: str) -> None:
    text = f"attention direction={direction} batch=2 heads=32 kv_heads=8 q_len=4096 kv_len=4096 head_dim=128 "
    found = call(text + "v_head_dim=128 causal=1 dropout=0 dtype=bf16 backend=cudnn")
    assert found == Attention(direction, 2, 32, 8, 4096, 4096, 128, 128, True, "bfloat16", "cudnn")  # type: ignore[arg-type]


def test_a_sliding_window_comes_from_transformer_engine_s_arguments() -> None:
    """cuDNN's graph expresses it as masks."""
    text = "attention direction=forward batch=2 heads=32 kv_heads=8 q_len=4096 kv_len=4096 head_dim=64 v_head_dim=64 "
    windows = []
    for name, args in (("te::fused_attn_fwd", "129"), ("te::fused_attn_fwd", ""), ("aten::other", "129")):
        found = call(text + "causal=1 dtype=bf16", parse_operator(parse(f"op name={name} in= out= args={args}")))
        assert isinstance(found, Attention)
        windows.append(found.window)
    assert windows == [129, 0, 0]


def test_transformer_engine_s_packed_sequences_are_as_many_as_there_are() -> None:
    """Its graph has rounded numbers of sequences and the longest's tokens."""
    text = "attention direction=forward batch=16 heads=32 kv_heads=8 q_len=4096 kv_len=4096 head_dim=64 v_head_dim=64 "
    packed = "op name=te::fused_attn_fwd in=int32[11],int32[11] out= args=0,8000,8000"
    for graph, length in ((f"{text}ragged=1 causal=1 dtype=bf16", 800), (f"{text}causal=1 dtype=bf16", 4096)):
        found = call(graph, parse_operator(parse(packed)))
        assert isinstance(found, Attention)
        assert (found.batch, found.q_len, found.kv_len) == (10 if length == 800 else 16, length, length)


@pytest.mark.parametrize(
    ("word", "direction"), [("fprop", "forward"), ("dgrad", "backward_data"), ("wgrad", "backward_weight")]
)
def test_a_convolution_in_each_direction(word: str, direction: str) -> None:
    text = f"conv direction={word} n=8 c=3 k=64 input=224,224 filter=7,7 output=112,112 stride=2,2 dilation=1,1 "
    assert call(text + "groups=1 dtype=bf16 compute=f32 layout=nhwc") == Convolution(
        direction=direction,  # type: ignore[arg-type]
        batch=8,
        in_channels=3,
        out_channels=64,
        input_size=(224, 224),
        filter_size=(7, 7),
        output_size=(112, 112),
        stride=(2, 2),
        dilation=(1, 1),
        groups=1,
        dtype="bfloat16",
        layout="nhwc",
    )


def test_copies_keep_direction_and_pinning() -> None:
    assert call("copy direction=h2d bytes=1024 pinned=1") == Copy("h2d", 1024, pinned=True)
    assert call("memset bytes=512") == Copy("memset", 512)


def test_a_fused_graph_is_known_by_its_operations_and_bytes() -> None:
    assert call("cudnn_graph ops=norm_forward bytes=1000 dtype=f16") == Fused(
        "cudnn_graph norm_forward", 500, 500, 250, "float16"
    )


def test_an_unknown_call_keeps_its_bytes_or_its_operator() -> None:
    by = parse_operator(parse("op name=aten::linalg_qr in=Float[8;8] out=Float[8;8],Float[8;8] args="))
    assert call("histogram bytes=4001") == Elementwise(2000, 2001, 1000, "float32", operator="histogram")
    assert call("geqrf", by) == Kernel("geqrf", (1, 1, 1), (1, 1, 1), bytes=768, operator="aten::linalg_qr")


@pytest.mark.parametrize(
    "short", ["f64", "f32", "f16", "bf16", "i8", "i64", "u8", "u64", "e4m3", "e5m2", "e8m0", "c64"]
)
def test_short_type_names_have_known_sizes(short: str) -> None:
    """A type of unknown size would silently count as one byte."""
    bits = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16, "i64": 64, "u64": 64, "c64": 64}.get(short, 8)
    assert dtype_bytes(library_calls.dtype_of(short)) * 8 == bits
