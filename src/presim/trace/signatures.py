"""Signatures: immutable descriptions of device work, holding all that its price may depend on.

A step has tens of thousands of entries and a few hundred signatures, so each is priced once. They are a
closed set of frozen structs, told apart by the JSON field ``family``; reading one back gives an equal value.

Sizes are in elements unless a name says bytes. Data types are PyTorch's names without the prefix
(``bfloat16``, ``float32``, ``float8_e4m3fn``, ``int64``, ``bool``).
"""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

import msgspec

from presim.system.files.field_bounds import Ratio, Size
from presim.trace.collective import Collective as Collective
from presim.trace.sparse_product import SparseProduct as SparseProduct

Direction: TypeAlias = Literal["forward", "backward"]


TINYGEMM, NF4 = "tinygemm", "nf4"
MACHETE, MARLIN = "machete", "marlin"


class Gemm(msgspec.Struct, frozen=True, tag_field="family", tag="gemm"):
    """``d[batch, m, n] = a[batch, m, k] @ b[batch, k, n]`` (+ ``c``), in row-major terms."""

    m: Size
    n: Size
    k: Size
    batch: Size
    dtype: str  # of a (and of b, unless b_dtype says otherwise)
    compute: str = "float32"  # accumulation: float32, tf32, float16, int32, float64
    out_dtype: str = ""  # of d; empty: same as dtype
    b_dtype: str = ""  # of b; empty: same as dtype
    layout: str = "NN"  # N: as in the formula, T: transposed in memory; a then b
    accumulate: bool = False  # reads c (beta != 0)
    epilogue: str = ""  # fused bias, gelu, …; empty: none
    # Factors of FP8 and FP4 operands: outer (one a row and column), block; empty: one a tensor. Of 4-bit weights: the
    # kernel that knows their order, which is PyTorch's (TINYGEMM), bitsandbytes' (NF4) or one of an engine (MACHETE,
    # MARLIN); empty: the one that vLLM chooses on the GPU.
    scaling: str = ""
    sums: str = ""  # of FP8: fast (in the tensor cores' few bits), precise (taken out in between); empty: not known
    sparsity: str = ""  # "2:4 a" or "2:4 b": two of every four values of that operand are kept; empty: dense

    @property
    def flops(self) -> int:
        """Multiply-adds counted as two; with a 2:4 operand those of the values that are kept."""
        dense = 2 * self.m * self.n * self.k * self.batch
        return dense // 2 if self.sparsity else dense


class GroupedGemm(msgspec.Struct, frozen=True, tag_field="family", tag="grouped_gemm"):
    """``groups`` products that share k and n, with ``m`` rows in all (mixture of experts)."""

    groups: Size
    m: Size
    n: Size
    k: Size
    dtype: str
    out_dtype: str = ""
    sizes: tuple[Size, ...] = ()  # of the groups that are not empty, largest first, rounded; none: alike, or not known
    along: Literal["m", "n", "k"] = "m"  # the dimension that is divided among the groups
    b_dtype: str = ""  # of b, if a kernel unpacks its 4 bits while it multiplies (Marlin); empty: same as dtype

    @property
    def flops(self) -> int:
        """Multiply-adds counted as two."""
        return 2 * self.m * self.n * self.k


class Attention(msgspec.Struct, frozen=True, tag_field="family", tag="attention"):
    """Fused scaled-dot-product attention."""

    direction: Direction
    batch: Size
    heads: Size
    kv_heads: Size
    q_len: Size
    kv_len: Size
    head_dim: Size
    v_head_dim: Size
    causal: bool
    dtype: str
    backend: str  # cudnn, flash, efficient, flex, …
    window: Size = 0  # sliding window in tokens; 0: none
    dropout: bool = False
    paged: bool = False  # keys and values lie in pages of a cache, found by a table

    @property
    def flops(self) -> int:
        """Two products forward, five backward (with the recomputed scores); half of it where causal.

        Source: Dao, FlashAttention-2 (2023), section 4.1; the backward's 2.5 counts the recomputation.
        """
        pairs = self.q_len * self.kv_len
        if self.causal:  # query i of the last q_len positions sees kv_len - q_len + i + 1 keys
            masked = self.q_len * (self.q_len - 1) // 2
            pairs = pairs - masked if self.q_len <= self.kv_len else pairs // 2
        if self.window:
            pairs = min(pairs, self.q_len * self.window)
        per_pair = self.head_dim + self.v_head_dim
        products = 2 * per_pair if self.direction == "forward" else 2 * (3 * self.head_dim + 2 * self.v_head_dim)
        return self.batch * self.heads * pairs * products


class Convolution(msgspec.Struct, frozen=True, tag_field="family", tag="convolution"):
    """A convolution over 1-3 spatial dimensions, or one of its two gradients."""

    direction: Literal["forward", "backward_data", "backward_weight"]
    batch: Size
    in_channels: Size
    out_channels: Size
    input_size: tuple[Size, ...]
    filter_size: tuple[Size, ...]
    output_size: tuple[Size, ...]
    stride: tuple[Size, ...]
    dilation: tuple[Size, ...]
    groups: Size
    dtype: str
    compute: str = "float32"
    layout: str = "nchw"

    @property
    def flops(self) -> int:
        """Multiply-adds of the direct algorithm counted as two; equal in all three directions."""
        taps = 1
        for size in self.filter_size:
            taps *= size
        points = self.batch
        for size in self.output_size:
            points *= size
        return 2 * points * self.out_channels * (self.in_channels // self.groups) * taps


class _MemoryBound(msgspec.Struct, frozen=True, tag_field="family"):
    """Work whose time is the time to move its bytes."""

    bytes_read: Size
    bytes_written: Size
    elements: Size  # of the largest operand
    dtype: str
    fused_tensors: Size = 1  # tensors handled by one launch (multi-tensor kernels)
    operator: str = ""  # e.g. aten::add; lets learned models tell classes of arithmetic apart

    flops: ClassVar[int] = 0

    @property
    def bytes(self) -> int:
        """Bytes moved to and from memory, read and written."""
        return self.bytes_read + self.bytes_written


class Elementwise(_MemoryBound, frozen=True, tag="elementwise"):
    """One result per element: arithmetic, activations, casts, masks, fills.

    Operands count where a kernel accesses them element by element; both are 0 for kernels that load several at once.
    """

    strided_operands: Size = 0  # by an address computed for each element: expanded or not contiguous tensors
    cast_operands: Size = 0  # with a cast of each element between data types


class Reduction(_MemoryBound, frozen=True, tag="reduction"):
    """Sums, means, norms, argmax, scans."""


class Normalization(_MemoryBound, frozen=True, tag="normalization"):
    """Layer, RMS, group and batch normalisation, forward and backward."""

    row: Size = 0  # elements that are normalised together; 0: not known (older traces, batch and group norms)


class Softmax(_MemoryBound, frozen=True, tag="softmax"):
    """Softmax, log-softmax and cross entropy, forward and backward."""

    row: Size = 0  # elements that add up to one; 0: not known (older traces, losses)


class Optimizer(_MemoryBound, frozen=True, tag="optimizer"):
    """Optimizer updates, usually over many tensors in one launch."""


class Index(_MemoryBound, frozen=True, tag="index"):
    """Gather, scatter, embedding, index_put, masked select: access by address."""


class Sort(_MemoryBound, frozen=True, tag="sort"):
    """Sort, top-k, unique, histogram."""


class Random(_MemoryBound, frozen=True, tag="random"):
    """Random numbers: dropout masks, initialisation."""


class Fused(msgspec.Struct, frozen=True, tag_field="family", tag="fused"):
    """A generated kernel (Triton, inductor) known by the operators it fuses."""

    name: str
    bytes_read: Size
    bytes_written: Size
    elements: Size
    dtype: str
    flops: Size = 0
    plain: Size = 0  # instructions of all threads, where the source is known: of 32 bits and fewer
    special: Size = 0  # transcendental functions, reciprocals, conversions from and to 64 bits
    wide: Size = 0  # floating point in 64 bits
    across_bytes: Size = (
        0  # of its narrowest result's elements, where tensors lie across each other (a transposed copy)
    )
    products: tuple[tuple[str, Size], ...] = ()  # FLOPs of its matrix products, by the type whose units do them
    programs: Size = 0  # thread blocks of the launch, where its code is known
    longest: Ratio = 1.0  # work of the block that has most, over the mean of all

    @property
    def bytes(self) -> int:
        """Bytes moved to and from memory, read and written."""
        return self.bytes_read + self.bytes_written

    @property
    def product_flops(self) -> int:
        """FLOPs of all its matrix products."""
        return sum(flops for _, flops in self.products)


class Copy(msgspec.Struct, frozen=True, tag_field="family", tag="copy"):
    """A copy or memset by the copy engine or a copy kernel."""

    direction: Literal["h2d", "d2h", "d2d", "peer", "memset"]
    bytes: Size
    pinned: bool = False  # host side is page-locked

    flops: ClassVar[int] = 0


class Kernel(msgspec.Struct, frozen=True, tag_field="family", tag="kernel"):
    """Work of which nothing better is known than its name and size of launch."""

    name: str
    grid: tuple[Size, Size, Size]
    block: tuple[Size, Size, Size]
    bytes: Size = 0  # bytes of the tensors its operator touches, where known
    operator: str = ""
    flops: Size = 0  # where they are known all the same: of a solver's call


Signature: TypeAlias = (
    Gemm
    | GroupedGemm
    | SparseProduct
    | Attention
    | Convolution
    | Elementwise
    | Reduction
    | Normalization
    | Softmax
    | Optimizer
    | Index
    | Sort
    | Random
    | Fused
    | Copy
    | Collective
    | Kernel
)
MemoryBound = _MemoryBound


def vectorised(signature: Elementwise) -> Elementwise:
    """The same work by a kernel that loads several elements at once, as captures without such counts say."""
    return msgspec.structs.replace(signature, strided_operands=0, cast_operands=0)


def family(signature: Signature) -> str:
    """The word that names the signature's class in files and reports, e.g. ``grouped_gemm``."""
    return str(signature.__struct_config__.tag)
