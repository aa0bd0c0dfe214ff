"""Signatures that programs really have, as hypothesis strategies; sizes on the grid that libraries are tuned for."""

from __future__ import annotations

from hypothesis import strategies as st

from presim.trace.collective import COLLECTIVE_KINDS, Collective
from presim.trace.signatures import (
    Attention,
    Convolution,
    Copy,
    Elementwise,
    Fused,
    Gemm,
    GroupedGemm,
    Index,
    Kernel,
    MemoryBound,
    Normalization,
    Optimizer,
    Random,
    Reduction,
    Signature,
    Softmax,
    Sort,
    SparseProduct,
)

SIDES = st.integers(1, 2048).map(lambda parts: 16 * parts)  # multiples of 16 bytes: others take slower kernels
FLOATS = st.sampled_from(("bfloat16", "float16", "float32"))
BYTES = st.integers(0, 34).flatmap(lambda power: st.integers(0, 1 << power))


def gemms() -> st.SearchStrategy[Gemm]:
    types = st.sampled_from(("bfloat16", "float16", "float32", "float64", "float8_e4m3fn", "int8"))
    compute = st.sampled_from(("float32", "tf32"))
    layouts, batch = st.sampled_from(("NN", "NT", "TN", "TT")), st.integers(1, 64)
    return st.builds(
        Gemm, m=SIDES, n=SIDES, k=SIDES, batch=batch, dtype=types, compute=compute, layout=layouts,
        accumulate=st.booleans(), out_dtype=st.sampled_from(("", "float32")),
        sparsity=st.sampled_from(("", "", "", "2:4 a", "2:4 b")),
    )  # fmt: skip


def grouped() -> st.SearchStrategy[GroupedGemm]:
    return st.builds(GroupedGemm, groups=st.integers(1, 256), m=SIDES, n=SIDES, k=SIDES, dtype=st.just("bfloat16"))


@st.composite
def skewed(draw: st.DrawFn) -> GroupedGemm:
    """Groups of different sizes along any dimension, some of them empty."""
    sizes = tuple(sorted(draw(st.lists(st.integers(1, 4096), min_size=1, max_size=64)), reverse=True))
    groups, side, along = len(sizes) + draw(st.integers(0, 8)), draw(SIDES), draw(st.sampled_from(("m", "n", "k")))
    m = sum(sizes) if along == "m" else groups * side
    mean = max(1, sum(sizes) // groups)
    other = {"n": mean if along == "n" else side, "k": mean if along == "k" else side}
    return GroupedGemm(groups, m, **other, dtype="bfloat16", sizes=sizes, along=along)


@st.composite
def sparse(draw: st.DrawFn) -> SparseProduct:
    operation = draw(st.sampled_from(("spmm", "spmv", "sddmm", "spgemm")))
    m, k, nnz = draw(st.integers(1, 1 << 20)), draw(st.integers(1, 1 << 20)), draw(st.integers(0, 1 << 26))
    both = operation == "spgemm"
    return SparseProduct(
        operation=operation, m=m, n=1 if operation == "spmv" else draw(st.integers(1, 4096)), k=k, nnz=nnz,
        batch=draw(st.integers(1, 4)), dtype=draw(FLOATS), format=draw(st.sampled_from(("csr", "coo"))),
        other_nnz=draw(st.integers(0, 1 << 20)) if both else 0, result_nnz=draw(st.integers(0, 1 << 20)) if both else 0,
    )  # fmt: skip


@st.composite
def attentions(draw: st.DrawFn) -> Attention:
    length, heads = draw(st.integers(1, 32768)), draw(st.sampled_from((1, 8, 32, 64)))
    decode = draw(st.booleans())
    dim = draw(st.sampled_from((64, 96, 128, 192, 256)))
    return Attention(
        direction="forward" if decode else draw(st.sampled_from(("forward", "backward"))),
        batch=draw(st.integers(1, 64)), heads=heads, kv_heads=draw(st.sampled_from([1, heads])),
        q_len=1 if decode else length, kv_len=length, head_dim=dim, v_head_dim=draw(st.sampled_from((dim, 128))),
        causal=draw(st.booleans()), dtype=draw(FLOATS), window=draw(st.sampled_from((0, 0, 128, 4096))),
        backend=draw(st.sampled_from(("flash", "cudnn", "efficient", "flex", "math"))),
    )  # fmt: skip


@st.composite
def memory_bound(draw: st.DrawFn) -> MemoryBound | Fused:
    families = (Elementwise, Reduction, Normalization, Softmax, Optimizer, Index, Sort, Random)
    read, written, dtype = draw(BYTES), draw(BYTES), draw(FLOATS)
    if draw(st.integers(0, 9)) == 0:
        flops, products = draw(st.sampled_from(((0, ()), (1 << 30, ()), (0, (("bfloat16", 1 << 40),)))))
        programs = draw(st.integers(0, 4096))
        return Fused(
            "triton_poi", read, written, (read + written) // 4, dtype, flops, products=products, programs=programs
        )
    operators = ("", "aten::add", "aten::gelu", "aten::cat", "aten::add_", "aten::cumsum")
    made: MemoryBound = draw(st.sampled_from(families))(
        read, written, max(read, written) // 4, dtype, operator=draw(st.sampled_from(operators))
    )
    return made


def copies() -> st.SearchStrategy[Copy]:
    return st.builds(
        Copy, direction=st.sampled_from(("h2d", "d2h", "d2d", "peer", "memset")), bytes=BYTES, pinned=st.booleans()
    )


@st.composite
def convolutions(draw: st.DrawFn) -> Convolution:
    size, taps, stride = draw(st.integers(7, 224)), draw(st.sampled_from((1, 3, 7))), draw(st.sampled_from((1, 2)))
    channels = draw(st.sampled_from((8, 64, 256)))
    out = -(-size // stride)
    return Convolution(
        direction=draw(st.sampled_from(("forward", "backward_data", "backward_weight"))),
        batch=draw(st.integers(1, 64)), in_channels=channels, out_channels=64,
        input_size=(size, size), filter_size=(taps, taps), output_size=(out, out), stride=(stride, stride),
        dilation=(1, 1), groups=1, dtype=draw(FLOATS), layout=draw(st.sampled_from(("nchw", "nhwc"))),
    )  # fmt: skip


def kernels() -> st.SearchStrategy[Kernel]:
    triple = st.tuples(st.integers(1, 1 << 16), st.integers(1, 8), st.just(1))
    return st.builds(Kernel, name=st.just("mystery"), grid=triple, block=st.just((128, 1, 1)), bytes=BYTES)


def signatures() -> st.SearchStrategy[Signature]:
    """Anything but collectives."""
    products = (gemms(), grouped(), skewed(), sparse(), attentions(), convolutions())
    return st.one_of(*products, memory_bound(), copies(), kernels())


def collectives() -> st.SearchStrategy[Collective]:
    return st.builds(
        Collective, kind=st.sampled_from(COLLECTIVE_KINDS), bytes=BYTES, dtype=st.just("bfloat16"), group=st.just(0),
        peer=st.sampled_from((-1, 0, 1)), fused=st.sampled_from((1, 1, 4)),
    )  # fmt: skip
