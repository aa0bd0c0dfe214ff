"""Fake cuBLAS and cuBLASLt, called through their C interface."""

from __future__ import annotations

import pytest

from support import emulated

CODE = """
from ctypes import byref, c_double, c_float, c_int, c_int64, c_longlong, c_size_t, c_uint64, c_void_p
from ctypes import create_string_buffer

blas = ctypes.CDLL("libcublas.so.13")
lt = ctypes.CDLL("libcublasLt.so.13")
handle = c_void_p()
assert blas.cublasCreate_v2(byref(handle)) == 0
one, zero = c_float(1), c_float(0)
A = B = C = c_void_p(0x10000)
F32, F16, BF16, E4M3, COMPUTE_32F = 0, 2, 14, 28, 68

def sgemm(beta, m=3):
    return blas.cublasSgemm_v2(handle, 1, 0, m, 5, 7, byref(one), A, 7, B, 7, byref(beta), C, 3)

with section("sgemm"):
    sgemm(zero)
    sgemm(one)
    blas.cublasSetMathMode(handle, 3)
    sgemm(zero)
    blas.cublasSetMathMode(handle, 0)

with section("device beta"):
    blas.cublasSetPointerMode_v2(handle, 1)
    sgemm(zero)
    blas.cublasSetPointerMode_v2(handle, 0)

with section("empty"):
    results["empty"] = sgemm(zero, m=0)

with section("strided"):
    blas.cublasGemmStridedBatchedEx(
        handle, 0, 1, 16, 32, 64, byref(one), A, BF16, 16, c_longlong(1024), B, BF16, 32, c_longlong(2048),
        byref(zero), C, F32, 16, c_longlong(512), 12, COMPUTE_32F, -1)

with section("gemv"):
    blas.cublasDgemv_v2(handle, 1, 10, 20, byref(c_double(1)), A, 10, B, 1, byref(c_double(0)), C, 1)

with section("routines"):
    blas.cublasStrsm_v2(handle, 0, 0, 0, 0, 8, 9, byref(one), A, 8, B, 8)
    blas.cublasSaxpy_v2(handle, 100, byref(one), A, 1, B, 1)

results["bad handle"] = blas.cublasSgemm_v2(c_void_p(), 0, 0, 1, 1, 1, byref(one), A, 1, B, 1, byref(zero), C, 1)
results["negative"] = sgemm(zero, m=-1)

def layout(kind, rows, columns, batch=1):
    out = c_void_p()
    assert lt.cublasLtMatrixLayoutCreate(byref(out), kind, c_uint64(rows), c_uint64(columns), c_int64(rows)) == 0
    lt.cublasLtMatrixLayoutSetAttribute(out, 5, byref(c_int(batch)), c_size_t(4))
    return out

def desc(**attributes):
    out = c_void_p()
    assert lt.cublasLtMatmulDescCreate(byref(out), COMPUTE_32F, F32) == 0
    for name, value in attributes.items():
        assert lt.cublasLtMatmulDescSetAttribute(out, int(name[1:]), byref(c_int(value)), c_size_t(4)) == 0
    return out

def matmul(d, a, b, out, beta=zero):
    return lt.cublasLtMatmul(
        handle, d, byref(one), A, a, B, b, byref(beta), C, out, C, out, None, None, c_size_t(0), None)

with section("lt epilogue"):
    d = desc(a3=1, a7=4 | 32 | 128)
    results["lt"] = matmul(d, layout(BF16, 64, 128), layout(BF16, 64, 256), layout(BF16, 128, 256))

with section("lt fp8"):
    d = desc(a3=1, a31=2, a32=2)
    matmul(d, layout(E4M3, 64, 128), layout(E4M3, 64, 256), layout(BF16, 128, 256))

with section("lt batch"):
    matmul(desc(), layout(F16, 8, 4, 6), layout(F16, 4, 2, 6), layout(F16, 8, 2, 6), one)

results["lt mismatch"] = matmul(desc(), layout(F16, 8, 4), layout(F16, 5, 2), layout(F16, 8, 2))

heuristics, count = create_string_buffer(b"x" * 96 * 8, 96 * 8), c_int(-1)
status = lt.cublasLtMatmulAlgoGetHeuristic(
    handle, desc(), layout(F16, 8, 4), layout(F16, 4, 2), layout(F16, 8, 2), layout(F16, 8, 2), None, 8, heuristics,
    byref(count))
results["heuristic"] = [status, count.value, int.from_bytes(heuristics[64:72], "little")]

opaque = create_string_buffer(b"x" * 64, 64)
lt.cublasLtMatrixLayoutInit_internal(opaque, c_size_t(64), BF16, c_uint64(3), c_uint64(4), c_int64(5))
value, written = c_int64(), c_size_t()
lt.cublasLtMatrixLayoutGetAttribute(opaque, 4, byref(value), c_size_t(8), byref(written))
results["layout"] = [value.value, written.value]
"""


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> emulated.Captured:
    """One process makes all the calls."""
    return emulated.run(CODE, tmp_path_factory.mktemp("cublas"))


SGEMM = "gemm m=3 n=5 k=7 batch=1 a=f32 b=f32 c=f32 d=f32 compute={} transa=T transb=N beta={} epilogue=none"


def test_sgemm_is_logged_with_accumulation_and_precision(captured: emulated.Captured) -> None:
    """With beta 0, C is not read; the math mode selects full precision or TF32."""
    assert captured.work("sgemm") == [SGEMM.format("f32", 0), SGEMM.format("f32", 1), SGEMM.format("tf32", 0)]


def test_beta_in_device_memory_counts_as_accumulating(captured: emulated.Captured) -> None:
    """The host does not know its value."""
    assert captured.work("device beta") == [SGEMM.format("f32", 1)]


def test_empty_products_launch_nothing(captured: emulated.Captured) -> None:
    """The calls succeed, as in cuBLAS."""
    assert captured.work("empty") == []
    assert captured.results["empty"] == 0


def test_batched_product_has_its_own_output_type(captured: emulated.Captured) -> None:
    """bf16 operands may have an f32 result."""
    assert captured.work("strided") == [
        "gemm m=16 n=32 k=64 batch=12 a=bf16 b=bf16 c=f32 d=f32 compute=f32 transa=N transb=T beta=0 epilogue=none"
    ]


def test_matrix_vector_product_is_logged_with_one_column(captured: emulated.Captured) -> None:
    """Transposed, a 10 x 20 matrix gives 20 results of 10 terms."""
    assert captured.work("gemv") == [
        "gemm m=20 n=1 k=10 batch=1 a=f64 b=f64 c=f64 d=f64 compute=f64 transa=T transb=N beta=0 epilogue=none"
    ]


def test_other_routines_are_logged_with_name_and_size(captured: emulated.Captured) -> None:
    """Their rules are in stub_rules.txt."""
    assert captured.work("routines") == [
        "kernel name=cublasStrsm_v2 grid=0,0,0 block=0,0,0 shared=0 m=8 n=9",
        "kernel name=cublasSaxpy_v2 grid=0,0,0 block=0,0,0 shared=0 n=100",
    ]
    assert captured.log.calls == {}


def test_misuse_is_reported_as_cublas_does(captured: emulated.Captured) -> None:
    """Status 1 is `not initialized`, 7 is `invalid value`."""
    assert captured.results["bad handle"] == 1
    assert captured.results["negative"] == 7
    assert captured.results["lt mismatch"] == 7


def test_cublaslt_epilogues_and_scaling_modes_are_logged(captured: emulated.Captured) -> None:
    """Fused operations are part of a product's signature."""
    assert captured.work("lt epilogue") == [
        "gemm m=128 n=256 k=64 batch=1 a=bf16 b=bf16 c=bf16 d=bf16 compute=f32 transa=T transb=N beta=0 "
        "epilogue=gelu_aux_bias"
    ]
    assert captured.work("lt fp8") == [
        "gemm m=128 n=256 k=64 batch=1 a=e4m3 b=e4m3 c=bf16 d=bf16 compute=f32 transa=T transb=N beta=0 "
        "epilogue=none scale_a=vec32_e8m0 scale_b=vec32_e8m0"
    ]


def test_cublaslt_batch_size_comes_from_the_layout(captured: emulated.Captured) -> None:
    """cuBLASLt has no batched function."""
    assert captured.work("lt batch") == [
        "gemm m=8 n=2 k=4 batch=6 a=f16 b=f16 c=f16 d=f16 compute=f32 transa=N transb=N beta=1 epilogue=none"
    ]


def test_the_heuristic_returns_one_algorithm_without_workspace(captured: emulated.Captured) -> None:
    """The workspace size must be written: uninitialised memory once read as 67 million GiB."""
    assert captured.results["heuristic"] == [0, 1, 0]


def test_descriptors_are_stored_in_the_callers_memory(captured: emulated.Captured) -> None:
    """Transformer Engine keeps layouts on the stack."""
    assert captured.results["layout"] == [5, 8]
