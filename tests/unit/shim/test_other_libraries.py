"""Fake cuFFT, cuSPARSELt, NVRTC, CUPTI and cuDNN's recurrent weights, called through their C interfaces."""

from __future__ import annotations

import math

import pytest

from support import emulated

CODE = """
from ctypes import byref, c_char_p, c_int, c_int64, c_longlong, c_size_t, c_uint32, c_void_p, create_string_buffer

fft = ctypes.CDLL("libcufft.so.12")
with section("fft"):
    plan, size = c_int(), c_size_t(7)
    fft.cufftCreate(byref(plan))
    n = (c_longlong * 2)(64, 128)
    fft.cufftXtMakePlanMany(plan, 2, n, None, c_longlong(1), c_longlong(1), 0, None, c_longlong(1), c_longlong(1), 4,
                            c_longlong(3), byref(size), 4)
    fft.cufftXtExec(plan, None, None, -1)
    results["fft"] = [size.value, fft.cufftDestroy(plan), fft.cufftXtExec(plan, None, None, -1)]

sparse = ctypes.CDLL("libcusparseLt.so.0")
with section("2:4"):
    handle, a, b, c, matmul, plan, bytes_, buffer = (create_string_buffer(512) for _ in range(8))
    sparse.cusparseLtStructuredDescriptorInit(handle, a, c_int64(64), c_int64(128), c_int64(128), 16, 14, 1, 0)
    sparse.cusparseLtDenseDescriptorInit(handle, b, c_int64(128), c_int64(32), c_int64(32), 16, 14, 1)
    sparse.cusparseLtDenseDescriptorInit(handle, c, c_int64(64), c_int64(32), c_int64(32), 16, 14, 1)
    sparse.cusparseLtMatmulDescriptorInit(handle, matmul, 0, 0, a, b, c, c, 2)
    sparse.cusparseLtMatmulPlanInit(handle, plan, matmul, None)
    size = c_size_t()
    sparse.cusparseLtSpMMACompressedSize2(handle, a, byref(size), None)
    results["compressed"] = size.value
    sparse.cusparseLtMatmul(handle, plan, None, None, None, None, None, None, None, None, 0)
with section("2:4 by rows"):
    for out, shape, init in ((a, (64, 128), sparse.cusparseLtStructuredDescriptorInit),
                             (b, (128, 32), sparse.cusparseLtDenseDescriptorInit),
                             (c, (64, 32), sparse.cusparseLtDenseDescriptorInit)):
        init(handle, out, c_int64(shape[0]), c_int64(shape[1]), c_int64(shape[1]), 16, 14, 2, 0)
    sparse.cusparseLtMatmulDescriptorInit(handle, matmul, 0, 1, a, b, c, c, 2)
    sparse.cusparseLtMatmulDescSetAttribute(handle, matmul, 8, byref(c_void_p(1 << 40)), c_size_t(8))
    sparse.cusparseLtMatmulDescSetAttribute(handle, matmul, 0, byref(c_int(1)), c_size_t(4))
    sparse.cusparseLtMatmulPlanInit(handle, plan, matmul, None)
    sparse.cusparseLtMatmul(handle, plan, None, None, None, None, None, None, None, None, 0)

spx = ctypes.CDLL("libcusparse.so.12")
handle, csr, other, dense, wide = (c_void_p() for _ in range(5))
def csr_matrix(out, rows, columns, nnz):
    spx.cusparseCreateCsr(byref(out), c_int64(rows), c_int64(columns), c_int64(nnz), None, None, None, 2, 3, 0, 0)
with section("sparse"):
    spx.cusparseCreate(byref(handle))
    csr_matrix(csr, 100, 200, 600)
    spx.cusparseCreateDnMat(byref(dense), c_int64(200), c_int64(16), c_int64(16), None, 0, 2)
    spx.cusparseCreateDnMat(byref(wide), c_int64(100), c_int64(16), c_int64(16), None, 0, 2)
    spx.cusparseSpMM(handle, 0, 0, None, csr, dense, None, wide, 0, 0, None)
    spx.cusparseSDDMM_preprocess(handle, 0, 1, None, wide, dense, None, csr, 0, 0, None)
    spx.cusparseSDDMM(handle, 0, 1, None, wide, dense, None, csr, 0, 0, None)
    spx.cusparseSbsrmm(handle, 0, 0, 0, 4, 64, 8, 5, None, None, None, None, None, 32, None, 0, None, None, 0)
with section("sparse by sparse"):
    csr_matrix(other, 200, 100, 2000)
    result, size, counts = c_void_p(), c_size_t(), [c_int64() for _ in range(3)]
    csr_matrix(result, 100, 100, 0)
    for buffer in (None, c_void_p(1 << 40)):
        for step in (spx.cusparseSpGEMM_workEstimation, spx.cusparseSpGEMM_compute):
            step(handle, 0, 0, None, csr, other, None, result, 0, 0, None, byref(size), buffer)
    spx.cusparseSpMatGetSize(result, *(byref(count) for count in counts))
    results["non-zeros"] = counts[2].value

rtc = ctypes.CDLL("libnvrtc.so.13")
program, lowered, size = c_void_p(), c_char_p(), c_size_t()
rtc.nvrtcCreateProgram(byref(program), b"template <int n> __global__ void k() {}", b"k.cu", 0, None, None)
rtc.nvrtcAddNameExpression(program, b"&k<3>")
rtc.nvrtcCompileProgram(program, 0, None)
rtc.nvrtcGetLoweredName(program, b"&k<3>", byref(lowered))
rtc.nvrtcGetPTXSize(program, byref(size))
text = create_string_buffer(size.value)
rtc.nvrtcGetPTX(program, text)
results["nvrtc"] = [lowered.value.decode(), ".entry k_3_()" in text.value.decode()]

results["cupti"] = ctypes.CDLL("libcupti.so.13").cuptiSubscribe(byref(c_void_p()), None, None)

dnn = ctypes.CDLL("libcudnn.so.9")
rnn, matrix, bias, size = c_void_p(), c_void_p(), c_void_p(), c_size_t()
dnn.cudnnCreateRNNDescriptor(byref(rnn))
dnn.cudnnCreateTensorDescriptor(byref(matrix))
dnn.cudnnCreateTensorDescriptor(byref(bias))
# LSTM, two layers, both directions, 10 inputs, 20 hidden
dnn.cudnnSetRNNDescriptor_v8(rnn, 0, 2, 2, 1, 0, 0, 0, 0, 10, 20, 20, 2, None, c_uint32(0))
dnn.cudnnGetRNNWeightSpaceSize(None, rnn, byref(size))
results["rnn bytes"] = size.value

def part(layer, linear):
    address, bias_address, kind, count = c_void_p(), c_void_p(), c_int(), c_int()
    dims, strides = (c_int * 3)(), (c_int * 3)()
    dnn.cudnnGetRNNWeightParams(None, rnn, layer, c_size_t(0), c_void_p(1 << 40), linear, matrix, byref(address), bias,
                                byref(bias_address))
    dnn.cudnnGetTensorNdDescriptor(matrix, 3, byref(kind), byref(count), dims, strides)
    return [address.value - (1 << 40), bias_address.value - (1 << 40), *dims]

results["rnn parts"] = [part(0, 0), part(0, 1), part(0, 4), part(1, 0), part(2, 0)]
"""


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> emulated.Captured:
    """One process makes all the calls."""
    return emulated.run(CODE, tmp_path_factory.mktemp("libraries"))


def test_fft_is_logged_with_sizes_and_bytes(captured: emulated.Captured) -> None:
    """Real to complex: the complex side has n / 2 + 1 values in the last dimension."""
    size = 3 * 64 * 128 * 4 + 3 * 64 * 65 * 8
    assert captured.work("fft") == [f"fft kind=r2c sizes=64,128 batch=3 dtype=f32 bytes={size}"]
    assert captured.results["fft"] == [0, 0, 1]  # statuses of no workspace, destruction and an invalid plan


def test_structured_sparsity(captured: emulated.Captured) -> None:
    """Compressed operands have half the values and two bits of position per kept value."""
    assert captured.results["compressed"] == 64 * 128 // 2 * 2 + 64 * 128 // 8
    (text,) = captured.work("2:4")
    assert text.startswith("gemm m=64 n=32 k=128 batch=1 a=bf16 b=bf16")
    assert text.endswith("sparse=2:4 sparse_operand=a")


def test_structured_sparsity_in_row_major_order(captured: emulated.Captured) -> None:
    """Row-major products are logged column-major, as in cuBLAS: the operands are swapped, the sparse one too."""
    (text,) = captured.work("2:4 by rows")
    assert text.startswith("gemm m=128 n=64 k=128 batch=1")
    assert "transa=T transb=N" in text
    assert text.endswith("epilogue=relu_bias sparse=2:4 sparse_operand=b")


SPARSE = "sparse_product operation={} m={} n={} k={} nnz={} other={} result={} batch=1 dtype=f32 format={}"


def test_sparse_products_are_logged_with_their_sizes(captured: emulated.Captured) -> None:
    """Sizes come from the descriptors; block sizes come from the call."""
    csr, blocks = " index_bytes=8 block=1", " index_bytes=4 block=32"
    assert captured.work("sparse") == [
        SPARSE.format("spmm", 100, 16, 200, 600, 0, 0, "csr") + csr,
        f"cusparseSDDMM_preprocess bytes={(600 + 101) * 8}",
        SPARSE.format("sddmm", 100, 200, 16, 600, 0, 0, "csr") + csr,
        SPARSE.format("spmm", 128, 64, 256, 5 * 1024, 0, 0, "bsr") + blocks,
    ]


def test_the_size_of_a_sparse_result_assumes_uniformly_distributed_operands(captured: emulated.Captured) -> None:
    """600 * 2000 / 200 pairs fall on 100 * 100 entries, some twice; calls without a buffer launch nothing."""
    expected = round(10000 * (1 - math.exp(-6000 / 10000)))
    assert captured.results["non-zeros"] == expected
    product = SPARSE.format("spgemm", 100, 100, 200, 600, 2000, expected, "csr") + " index_bytes=8 block=1"
    assert captured.work("sparse by sparse") == [
        f"cusparseSpGEMM_workEstimation bytes={(600 + 101 + 2000 + 201) * 8}",
        product,
    ]
    (note,) = (note for note in captured.log.notes if note.startswith("remark"))
    assert f"the first: {expected}, at most 6000" in note


def test_kernels_compiled_at_run_time_have_names(captured: emulated.Captured) -> None:
    """The driver finds the function by its lowered name."""
    assert captured.results["nvrtc"] == ["k_3_", True]


def test_cupti_is_not_initialized(captured: emulated.Captured) -> None:
    """Status 15 is `not initialized`; torch.profiler continues without device activities."""
    assert captured.results["cupti"] == 15


def test_recurrent_weights_are_contiguous(captured: emulated.Captured) -> None:
    """All matrices first (input gates, then state gates, layer by layer), then all biases in the same order."""
    first = 4 * 20 * 10 + 4 * 20 * 20  # one direction of layer 0
    second = 4 * 20 * 40 + 4 * 20 * 20
    matrices, biases = 2 * first + 2 * second, 4 * 8 * 20
    assert captured.results["rnn bytes"] == 4 * (matrices + biases)
    assert captured.results["rnn parts"] == [
        [0, 4 * matrices, 1, 20, 10],
        [4 * 200, 4 * (matrices + 20), 1, 20, 10],
        [4 * 800, 4 * (matrices + 80), 1, 20, 20],
        [4 * first, 4 * (matrices + 160), 1, 20, 10],
        [4 * 2 * first, 4 * (matrices + 320), 1, 20, 40],
    ]
