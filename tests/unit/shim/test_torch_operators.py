"""Calls of PyTorch operators to the fake math libraries: exact shapes, types and layouts."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import emulated

CODE = """
import torch, torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

def attempt(name, function):
    with section(name):
        try:
            function()
        except Exception as error:
            results[name] = repr(error)[:300]

def r(*shape, dtype=torch.bfloat16, grad=False):
    return torch.randn(*shape, device="cuda", dtype=dtype, requires_grad=grad)

def f8(*shape):
    return torch.empty(*shape, device="cuda", dtype=torch.float8_e4m3fn)

f32, f64, f16, c64 = torch.float32, torch.float64, torch.float16, torch.complex64
r(4, 4) @ r(4, 4)  # loads the lazily loaded libraries
one = torch.ones((), device="cuda")

attempt("mm nn", lambda: r(16, 32) @ r(32, 64))
attempt("mm nt", lambda: r(16, 32) @ r(64, 32).t())
attempt("mm tn", lambda: r(32, 16).t() @ r(32, 64))
attempt("mm tt", lambda: r(32, 16).t() @ r(64, 32).t())
attempt("bmm", lambda: torch.bmm(r(5, 16, 32), r(5, 32, 64)))
attempt("baddbmm", lambda: torch.baddbmm(r(5, 16, 64), r(5, 16, 32), r(5, 32, 64)))
attempt("addmm bias", lambda: torch.addmm(r(64), r(16, 32), r(32, 64)))
attempt("addmm", lambda: torch.addmm(r(16, 64), r(16, 32), r(32, 64)))
attempt("linear", lambda: F.linear(r(2, 8, 32), r(64, 32), r(64)))
attempt("gelu", lambda: torch._addmm_activation(r(64), r(16, 32), r(32, 64), use_gelu=True))
attempt("f32", lambda: r(16, 32, dtype=f32) @ r(32, 64, dtype=f32))
attempt("f64", lambda: r(16, 32, dtype=f64) @ r(32, 64, dtype=f64))
attempt("c64", lambda: r(16, 32, dtype=c64) @ r(32, 64, dtype=c64))
torch.backends.cuda.matmul.allow_tf32 = True
attempt("tf32", lambda: r(16, 32, dtype=f32) @ r(32, 64, dtype=f32))
torch.backends.cuda.matmul.allow_tf32 = False
attempt("int8", lambda: torch._int_mm(*(torch.ones(32, 32, device="cuda", dtype=torch.int8) for _ in range(2))))
attempt("mv", lambda: torch.mv(r(64, 32, dtype=f32), r(32, dtype=f32)))
attempt("fp8 tensor", lambda: torch._scaled_mm(f8(32, 64), f8(128, 64).t(), one, one, out_dtype=torch.bfloat16))
attempt("fp8 row", lambda: torch._scaled_mm(
    f8(32, 64), f8(128, 64).t(), r(32, 1, dtype=f32), r(1, 128, dtype=f32), out_dtype=torch.bfloat16))
attempt("grouped", lambda: torch._grouped_mm(
    r(64, 32), r(4, 32, 16), torch.tensor([16, 32, 48, 64], device="cuda", dtype=torch.int32)))

def convolution(dtype, channels_last=False, **options):
    layout = torch.channels_last if channels_last else torch.contiguous_format
    x = r(2, 8, 32, 32, dtype=dtype).to(memory_format=layout).requires_grad_()
    w = r(16, 8 // options.get("groups", 1), 3, 3, dtype=dtype).to(memory_format=layout).requires_grad_()
    F.conv2d(x, w, r(16, dtype=dtype), stride=2, padding=1, **options).sum().backward()

attempt("conv", lambda: convolution(torch.bfloat16))
attempt("conv nhwc", lambda: convolution(f16, True))
attempt("conv tf32", lambda: convolution(f32))
torch.backends.cudnn.allow_tf32 = False
attempt("conv f32", lambda: convolution(f32))
torch.backends.cudnn.allow_tf32 = True
torch.backends.cudnn.benchmark = True
attempt("conv benchmark", lambda: convolution(torch.bfloat16, groups=2))
torch.backends.cudnn.benchmark = False
attempt("conv3d", lambda: F.conv3d(r(2, 8, 8, 32, 32), r(4, 8, 3, 3, 3)))
attempt("conv1d", lambda: F.conv1d(r(2, 8, 32), r(8, 8, 3)))
attempt("conv transposed", lambda: F.conv_transpose2d(r(2, 8, 32, 32), r(8, 4, 3, 3), stride=2))

def attention(backend, heads=8, length=128, **options):
    q, k, v = r(2, 8, 128, 64, grad=True), r(2, heads, length, 64, grad=True), r(2, heads, length, 64, grad=True)
    with sdpa_kernel(backend) if backend else contextlib.nullcontext():
        F.scaled_dot_product_attention(q, k, v, **options).sum().backward()

cudnn = SDPBackend.CUDNN_ATTENTION
attempt("sdpa", lambda: attention(None, is_causal=True))
attempt("sdpa cudnn", lambda: attention(cudnn))
attempt("sdpa gqa", lambda: attention(cudnn, heads=2, length=256, enable_gqa=True))
attempt("sdpa dropout", lambda: attention(cudnn, is_causal=True, dropout_p=0.125))
attempt("sdpa mask", lambda: attention(cudnn, attn_mask=r(2, 1, 128, 128)))
attempt("sdpa flash", lambda: attention(SDPBackend.FLASH_ATTENTION, is_causal=True))
attempt("sdpa efficient", lambda: attention(SDPBackend.EFFICIENT_ATTENTION, is_causal=True))
attempt("sdpa math", lambda: attention(SDPBackend.MATH))

def recurrent(layer, **options):
    x = torch.randn(5, 3, 10, device="cuda", requires_grad=True)
    layer(10, 20, 2, **options).cuda()(x)[0].sum().backward()

attempt("lstm", lambda: recurrent(torch.nn.LSTM, bidirectional=True, dropout=0.1))
attempt("lstm projection", lambda: recurrent(torch.nn.LSTM, proj_size=8))
attempt("gru", lambda: recurrent(torch.nn.GRU, bias=False))
attempt("rnn", lambda: recurrent(torch.nn.RNN, batch_first=True))

def batch_norm():
    layer = torch.nn.BatchNorm2d(8).cuda()
    layer(r(2, 8, 16, 16, dtype=f32, grad=True)).sum().backward()
    layer.eval()(r(2, 8, 16, 16, dtype=f32))

attempt("batch norm", batch_norm)
attempt("fft", lambda: torch.fft.rfft2(r(3, 64, 128, dtype=f32)))

batch, single = torch.zeros(3, 8, 8, device="cuda"), torch.zeros(8, 8, device="cuda")
for name in "cholesky lu inv qr eigh svd det solve lstsq eigvals".split():
    function = getattr(torch.linalg, name)
    arguments = (batch, batch) if name in ("solve", "lstsq") else (batch,)
    attempt(f"linalg {name}", lambda: function(*arguments))
attempt("linalg one", lambda: torch.linalg.cholesky(single))

def csr():
    offsets, columns = torch.tensor([0, 2, 4]), torch.tensor([0, 1, 0, 1])
    return torch.sparse_csr_tensor(offsets, columns, torch.randn(4), size=(2, 2)).cuda()

attempt("sparse mm", lambda: csr() @ r(2, 3, dtype=f32))
attempt("sparse mv", lambda: csr() @ r(2, dtype=f32))
attempt("sparse sparse", lambda: csr() @ csr())
attempt("2:4", lambda: torch._cslt_sparse_mm(torch._cslt_compress(r(64, 128, dtype=f16)), r(128, 32, dtype=f16)))

def profile():
    from torch.profiler import profile
    with profile() as profiler:
        torch.ones(3, device="cuda")
    results["events"] = len(profiler.events())

attempt("profiler", profile)
"""

GEMM = "gemm m=64 n=16 k=32 batch=1 a={0} b={0} c={0} d={0} compute={1} transa={2} transb={3} beta={4} epilogue={5}"


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> emulated.Captured:
    """One process runs all the operators.

    Without caching each tensor has fresh memory, which reads as zero: a status that a kernel would have written then
    says success, where a recycled block would hold what its last owner left.
    """
    emulated.require_cuda_torch()
    return emulated.run(CODE, tmp_path_factory.mktemp("operators"), PYTORCH_NO_CUDA_MEMORY_CACHING="1")


def test_no_operator_fails(captured: emulated.Captured) -> None:
    """Every operator completes."""
    assert {name: text for name, text in captured.results.items() if name != "events"} == {}


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("mm nn", GEMM.format("bf16", "f32", "N", "N", 0, "none")),
        ("mm nt", GEMM.format("bf16", "f32", "T", "N", 0, "none")),
        ("mm tn", GEMM.format("bf16", "f32", "N", "T", 0, "none")),
        ("mm tt", GEMM.format("bf16", "f32", "T", "T", 0, "none")),
        ("addmm bias", GEMM.format("bf16", "f32", "N", "N", 0, "bias")),
        ("addmm", GEMM.format("bf16", "f32", "N", "N", 1, "none")),
        ("linear", GEMM.format("bf16", "f32", "T", "N", 0, "bias")),
        ("gelu", GEMM.format("bf16", "f32", "N", "N", 0, "gelu_bias")),
        ("f32", GEMM.format("f32", "f32", "N", "N", 0, "none")),
        ("tf32", GEMM.format("f32", "tf32", "N", "N", 0, "none")),
        ("f64", GEMM.format("f64", "f64", "N", "N", 0, "none")),
        ("c64", GEMM.format("c64", "f32", "N", "N", 0, "none")),
        ("bmm", GEMM.format("bf16", "f32", "N", "N", 0, "none").replace("batch=1", "batch=5")),
        ("baddbmm", GEMM.format("bf16", "f32", "N", "N", 1, "none").replace("batch=1", "batch=5")),
    ],
)
def test_products(captured: emulated.Captured, section: str, expected: str) -> None:
    """m and n are cuBLAS's: a row-major [16, 64] result is [64, 16] in column-major order."""
    assert captured.work(section, "gemm") == [expected]


def test_products_of_other_types(captured: emulated.Captured) -> None:
    """Integers accumulate in 32 bits; fp8 has its scaling mode; a vector is one column."""
    assert captured.work("int8", "gemm") == [
        "gemm m=32 n=32 k=32 batch=1 a=i8 b=i8 c=i32 d=i32 compute=i32 transa=N transb=N beta=0 epilogue=none"
    ]
    assert captured.work("mv", "gemm") == [
        "gemm m=64 n=1 k=32 batch=1 a=f32 b=f32 c=f32 d=f32 compute=f32 transa=T transb=N beta=0 epilogue=none"
    ]
    for section, scale, sums in (("fp8 tensor", "tensor", " sums=precise"), ("fp8 row", "row", "")):
        assert captured.work(section, "gemm") == [
            "gemm m=128 n=32 k=64 batch=1 a=e4m3 b=e4m3 c=bf16 d=bf16 compute=f32 transa=T transb=N beta=0 "
            f"epilogue=none scale_a={scale} scale_b={scale}{sums}"
        ]


CONV = (
    "conv direction={} n=2 c=8 k=16 input=32,32 filter=3,3 output=16,16 stride=2,2 pad=1,1 dilation=1,1 "
    "groups={} dtype={} compute={} layout={}"
)


@pytest.mark.parametrize(
    ("section", "details"),
    [
        ("conv", (1, "bf16", "f32", "nchw")),
        ("conv nhwc", (1, "f16", "f32", "nhwc")),
        ("conv tf32", (1, "f32", "tf32", "nchw")),
        ("conv f32", (1, "f32", "f32", "nchw")),
        ("conv benchmark", (2, "bf16", "f32", "nchw")),
    ],
)
def test_convolution_and_its_gradients(
    captured: emulated.Captured, section: str, details: tuple[int, str, str, str]
) -> None:
    """TF32 is used unless it is disabled, as is PyTorch's default."""
    logged = captured.work(section, "conv")
    assert sorted(set(logged)) == sorted(CONV.format(direction, *details) for direction in ("fprop", "dgrad", "wgrad"))
    assert len(logged) == 3 or section == "conv benchmark"


def test_convolutions_of_other_dimensions(captured: emulated.Captured) -> None:
    """One and three dimensions, and the transposed convolution, which is a data gradient."""
    assert captured.work("conv3d", "conv") == [
        "conv direction=fprop n=2 c=8 k=4 input=8,32,32 filter=3,3,3 output=6,30,30 stride=1,1,1 pad=0,0,0 "
        "dilation=1,1,1 groups=1 dtype=bf16 compute=f32 layout=nchw"
    ]
    (text,) = captured.work("conv1d", "conv")
    assert "input=1,32 filter=1,3 output=1,30" in text
    (text,) = captured.work("conv transposed", "conv")
    assert text.startswith("conv direction=dgrad n=2 c=4 k=8 input=65,65 filter=3,3 output=32,32")


ATTENTION = (
    "attention direction={} batch=2 heads=8 kv_heads={} q_len=128 kv_len={} head_dim=64 v_head_dim=64 "
    "causal={} dropout={} dtype=bf16 backend=cudnn"
)


@pytest.mark.parametrize(
    ("section", "details"),
    [
        ("sdpa", (8, 128, 1, 0)),  # PyTorch chooses cuDNN for compute capability 9.0
        ("sdpa cudnn", (8, 128, 0, 0)),
        ("sdpa gqa", (2, 256, 0, 0)),
        ("sdpa dropout", (8, 128, 1, 1)),
        ("sdpa mask", (8, 128, 0, 0)),
    ],
)
def test_cudnn_attention(captured: emulated.Captured, section: str, details: tuple[int, int, int, int]) -> None:
    """It is found in the operation graph, fused or as single operations."""
    expected = [ATTENTION.format(direction, *details) for direction in ("forward", "backward")]
    assert captured.work(section, "attention") == expected


def test_other_attention_backends(captured: emulated.Captured) -> None:
    """Flash and memory-efficient attention are PyTorch's own kernels; the math backend calls cuBLAS."""
    assert any("flash_fwd" in text for text in captured.work("sdpa flash", "kernel"))
    assert any("fmha_cutlass" in text for text in captured.work("sdpa efficient", "kernel"))
    assert len(captured.work("sdpa math", "gemm")) == 6
    assert captured.work("grouped", "kernel")


def test_blackwell_formats_and_engines(tmp_path: Path) -> None:
    """4-bit and block-scaled 8-bit products, and a cuDNN engine selected by number."""
    emulated.require_cuda_torch()
    captured = emulated.run(
        """
        import torch, torch.nn.functional as F
        def make(dtype, *shape):
            return torch.empty(*shape, device="cuda", dtype=dtype)
        fp4, fp8, e8m0 = torch.float4_e2m1fn_x2, torch.float8_e4m3fn, torch.float8_e8m0fnu
        make(fp8, 1)
        with section("nvfp4"):
            torch._scaled_mm(make(fp4, 128, 64), make(fp4, 256, 64).t(), make(fp8, 1024), make(fp8, 2048),
                             out_dtype=torch.bfloat16)
        with section("mxfp8"):
            torch._scaled_mm(make(fp8, 128, 128), make(fp8, 256, 128).t(), make(e8m0, 512), make(e8m0, 1024),
                             out_dtype=torch.bfloat16)
        q, k, v = (make(torch.bfloat16, 2, 8, 64, 256).requires_grad_() for _ in range(3))
        with section("sdpa"):
            F.scaled_dot_product_attention(q, k, v).sum().backward()
        """,
        tmp_path,
        compute=(10, 0),
    )
    expected = (
        "gemm m=256 n=128 k=128 batch=1 a={0} b={0} c=bf16 d=bf16 compute=f32 transa=T transb=N beta=0 epilogue=none "
        "scale_a={1} scale_b={1}"
    )
    assert captured.work("nvfp4", "gemm") == [expected.format("e2m1", "vec16_e4m3")]
    assert captured.work("mxfp8", "gemm") == [expected.format("e4m3", "vec32_e8m0")]
    assert len(captured.work("sdpa", "attention")) == 2


def test_recurrent_layers_are_logged_as_their_products(captured: emulated.Captured) -> None:
    """The inputs of all five steps are one product, the states one each, forward and backward."""
    forward = [
        "gemm m=60 n=15 k=10 batch=1 a=f32 b=f32 c=f32 d=f32 compute=tf32 transa=T transb=N beta=0 epilogue=none",
        *["gemm m=60 n=3 k=20 batch=1 a=f32 b=f32 c=f32 d=f32 compute=tf32 transa=T transb=N beta=1 epilogue=none"] * 5,
    ]
    assert captured.work("gru", "gemm")[:6] == forward
    assert len(captured.work("gru", "gemm")) == 2 * 6 + 2 * 6 + 2 * 2
    assert len(captured.work("lstm", "gemm")) == 4 * 6 + 4 * 6 + 4 * 2
    assert len(captured.work("lstm projection", "gemm")) == 2 * 11 + 2 * 11 + 2 * 3


def test_cudnn_normalisation_reads(captured: emulated.Captured) -> None:
    """Statistics and normalisation read the input once each."""
    size = 2 * 8 * 16 * 16 * 4
    assert captured.work("batch norm", "cudnn_graph") == [
        f"cudnn_graph ops=batch_norm_forward bytes={3 * size} dtype=f32",
        f"cudnn_graph ops=batch_norm_backward bytes={5 * size} dtype=f32",
        f"cudnn_graph ops=batch_norm_inference bytes={2 * size} dtype=f32",
    ]


@pytest.mark.parametrize(
    ("section", "routine"),
    [
        ("linalg cholesky", "cusolverDnSpotrfBatched"),
        ("linalg one", "cusolverDnXpotrf"),
        ("linalg lu", "cublasSgetrfBatched"),
        ("linalg inv", "cublasSgetrsBatched"),
        ("linalg qr", "cusolverDnSorgqr"),
        ("linalg eigh", "cusolverDnXsyevBatched"),
        ("linalg svd", "cusolverDnSgesvdjBatched"),
        ("linalg det", "cublasSgetrfBatched"),
        ("linalg solve", "cublasSgetrfBatched"),
        ("linalg lstsq", "cublasSgelsBatched"),
        ("linalg eigvals", "cusolverDnXgeev"),
    ],
)
def test_linear_algebra(captured: emulated.Captured, section: str, routine: str) -> None:
    """Factorisations succeed (info = 0) and are logged with the routine that PyTorch chose."""
    assert any(text.startswith(f"kernel name={routine} ") for text in captured.work(section, "kernel"))


def test_sparse_products(captured: emulated.Captured) -> None:
    """They have their number of non-zeros; a row-major 2:4 product is logged column-major."""
    for section, operation, columns in (("sparse mm", "spmm", 3), ("sparse mv", "spmv", 1)):
        (text,) = captured.work(section, "sparse_product")
        assert text.startswith(
            f"sparse_product operation={operation} m=2 n={columns} k=2 nnz=4 other=0 result=0 batch=1"
        )
    (text,) = captured.work("sparse sparse", "sparse_product")
    assert text.startswith("sparse_product operation=spgemm m=2 n=2 k=2 nnz=4 other=4 result=3 batch=1")
    (text,) = captured.work("2:4", "gemm")
    assert text.startswith("gemm m=32 n=64 k=128")
    assert text.endswith("sparse=2:4 sparse_operand=b")


def test_transforms(captured: emulated.Captured) -> None:
    """They are logged with sizes, batch and bytes."""
    assert captured.work("fft", "fft") == [
        f"fft kind=r2c sizes=64,128 batch=3 dtype=f32 bytes={3 * 64 * (128 * 4 + 65 * 8)}"
    ]


def test_the_profiler_continues_without_a_device(captured: emulated.Captured) -> None:
    """It records CPU activities."""
    assert captured.results["events"] > 0  # type: ignore[operator]


def test_every_called_function_is_modelled(captured: emulated.Captured) -> None:
    """No function called by these operators is a counting stub."""
    prefixes = ("cublas", "cudnn", "cusolver", "cusparse", "cufft", "curand", "nccl", "nvrtc", "cupti")
    assert [name for name in captured.log.calls if name.startswith(prefixes)] == []
