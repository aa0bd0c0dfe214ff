"""Signatures of library calls, which contain their shapes: products, attention, convolutions, copies."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from presim.capture.reading.compute_kernels import grouped_product
from presim.capture.reading.launch_operators import LaunchingOperator
from presim.capture.reading.log import Descriptor
from presim.capture.reading.packed_attention import (
    is_packed,
    mean_length,
    packed_tensors,
    packed_tokens,
    sequence_count,
)
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

_SHORT_DTYPES = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "e8m0": "float8_e8m0fnu",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
    "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "e2m1": "float4_e2m1fn_x2",
    "f4e2m1": "float4_e2m1fn_x2",
    "c64": "complex64",
    "c128": "complex128",
}


def dtype_of(short: str) -> str:
    """PyTorch's name of a library's short type name."""
    return _SHORT_DTYPES.get(short, short)


def signature(work: Descriptor, operator: LaunchingOperator | None) -> Signature:
    """The signature of a library call; a call without a specific one becomes a `Kernel` of its name."""
    make = _CALLS.get(work.family)
    if work.family == "grouped_gemm" and operator and not work.number("m"):
        return grouped_product(operator) or _unknown(work, operator)  # cuBLASLt keeps these shapes on the device
    call_signature = make(work) if make else _unknown(work, operator)
    if not isinstance(call_signature, Attention) or operator is None:
        return call_signature
    if operator.name.startswith("te::fused_attn") and operator.scalars:
        call_signature = msgspec.structs.replace(call_signature, window=operator.scalars[0])
    if work.number("ragged") and is_packed(operator):
        return _of_mean_length(call_signature, operator)
    return call_signature


def _of_mean_length(attention: Attention, operator: LaunchingOperator) -> Attention:
    """Attention within packed sequences: cuDNN's graph has the length that none exceeds, the tensors all tokens.

    Its batch may be rounded up so that graphs recur (Transformer Engine); the sequences are those of the operator.
    """
    sequences, tokens = sequence_count(operator), packed_tokens(operator)
    if tokens is None:
        tensors = packed_tensors(operator, backward=attention.direction == "backward")
        if tensors is None:
            return attention
        tokens = tensors[0].shape[0], tensors[1].shape[0]
    return msgspec.structs.replace(
        attention,
        batch=sequences,
        q_len=min(attention.q_len, mean_length(tokens[0], sequences)),
        kv_len=min(attention.kv_len, mean_length(tokens[1], sequences)),
    )


def _gemm(work: Descriptor) -> Gemm:
    """Convert from cuBLAS's column-major order: D[m, n] = op(A) op(B) there is D[n, m] = op(B) op(A) row-major."""
    a, b, d = (dtype_of(work.fields.get(key, "f32")) for key in ("b", "a", "d"))
    compute = work.fields.get("compute", "f32")
    epilogue = work.fields.get("epilogue", "none")
    return Gemm(
        m=work.number("n"),
        n=work.number("m"),
        k=work.number("k"),
        batch=max(1, work.number("batch", 1)),
        dtype=a,
        b_dtype="" if a == b else b,
        out_dtype="" if d == a else d,
        compute=compute if compute == "tf32" else dtype_of(compute),
        layout=_layout(work.fields.get("transb", "N")) + _layout(work.fields.get("transa", "N")),
        accumulate=work.fields.get("beta", "0") != "0",
        epilogue="" if epilogue == "none" else epilogue,
        scaling=_scaling(work.fields.get("scale_a", "")),
        sums=work.fields.get("sums", ""),
        sparsity=_sparsity(work),
    )


def _sparsity(work: Descriptor) -> str:
    """cuSPARSELt's structured operand, which swaps with the order of the operands."""
    if "sparse" not in work.fields:
        return ""
    return f"{work.fields['sparse']} {'b' if work.fields.get('sparse_operand') == 'a' else 'a'}"


def _scaling(mode: str) -> str:
    """Scale mode from the emulation's names of cuBLASLt's modes."""
    if mode == "row":
        return "outer"
    return "block" if mode.startswith(("vec", "blk")) else ""


def _layout(transposed: str) -> str:
    return "N" if transposed == "N" else "T"


def _grouped_gemm(work: Descriptor) -> GroupedGemm:
    return GroupedGemm(
        groups=work.number("groups", 1),
        m=work.number("n"),
        n=work.number("m"),
        k=work.number("k"),
        dtype=dtype_of(work.fields.get("a", "bf16")),
    )


def _attention(work: Descriptor) -> Attention:
    return Attention(
        direction="backward" if work.fields.get("direction") == "backward" else "forward",
        batch=work.number("batch"),
        heads=work.number("heads"),
        kv_heads=work.number("kv_heads"),
        q_len=work.number("q_len"),
        kv_len=work.number("kv_len"),
        head_dim=work.number("head_dim"),
        v_head_dim=work.number("v_head_dim"),
        causal=work.fields.get("causal") == "1",
        dtype=dtype_of(work.fields.get("dtype", "bf16")),
        backend=work.fields.get("backend", "cudnn"),
        window=max(0, work.number("window")),
        dropout=work.fields.get("dropout") == "1",
    )


_DIRECTIONS = {"fprop": "forward", "dgrad": "backward_data", "wgrad": "backward_weight"}


def _convolution(work: Descriptor) -> Convolution:
    return Convolution(
        direction=_DIRECTIONS[work.fields["direction"]],  # type: ignore[arg-type]
        batch=work.number("n"),
        in_channels=work.number("c"),
        out_channels=work.number("k"),
        input_size=work.numbers("input"),
        filter_size=work.numbers("filter"),
        output_size=work.numbers("output"),
        stride=work.numbers("stride"),
        dilation=work.numbers("dilation"),
        groups=max(1, work.number("groups", 1)),
        dtype=dtype_of(work.fields.get("dtype", "f32")),
        compute=work.fields["compute"] if work.fields.get("compute") == "tf32" else "float32",
        layout=work.fields.get("layout", "nchw"),
    )


def _copy(work: Descriptor) -> Copy:
    direction = work.fields.get("direction", "d2d")
    pinned = work.fields.get("pinned") == "1"
    return Copy(direction=direction, bytes=work.number("bytes"), pinned=pinned)  # type: ignore[arg-type]


def _memset(work: Descriptor) -> Copy:
    return Copy(direction="memset", bytes=work.number("bytes"))


def _graph(work: Descriptor) -> Fused:
    """A fused cuDNN graph or an FFT, known by its bytes."""
    size = work.number("bytes")
    name = f"{work.family} {work.fields.get('ops', work.fields.get('kind', ''))}".strip()
    dtype = dtype_of(work.fields.get("dtype", "f32"))
    return Fused(name, bytes_read=size // 2, bytes_written=size - size // 2, elements=size // 4, dtype=dtype)


def _sparse_product(work: Descriptor) -> Signature:
    """A cuSPARSE call.

    The time of a triangular solve depends on its longest chain of rows, which is data, so it becomes a `Kernel`.
    """
    operation = work.fields["operation"]
    sizes = {name: work.number(name) for name in ("m", "n", "k", "nnz")}
    batch, dtype = max(1, work.number("batch", 1)), dtype_of(work.fields.get("dtype", "f32"))
    product = SparseProduct(
        "spmm" if operation in _SOLVERS else operation,  # type: ignore[arg-type]
        **sizes, batch=batch, dtype=dtype, format=work.fields.get("format", "csr"),
        index_bytes=work.number("index_bytes", 4), block=max(1, work.number("block", 1)),
        other_nnz=work.number("other"), result_nnz=work.number("result"),
    )  # fmt: skip
    if operation not in _SOLVERS:
        return product
    return Kernel(_SOLVERS[operation], (1, 1, 1), (1, 1, 1), bytes=product.bytes, flops=product.flops)


_SOLVERS = {"spsv": "cusparseSpSV_solve", "spsm": "cusparseSpSM_solve"}

_CALLS: dict[str, Callable[[Descriptor], Signature]] = {
    "gemm": _gemm,
    "grouped_gemm": _grouped_gemm,
    "sparse_product": _sparse_product,
    "attention": _attention,
    "conv": _convolution,
    "copy": _copy,
    "memset": _memset,
    "cudnn_graph": _graph,
    "fft": _graph,
}


def _unknown(work: Descriptor, operator: LaunchingOperator | None) -> Signature:
    size = work.number("bytes")
    if size:
        return Elementwise(size // 2, size - size // 2, size // 4, "float32", operator=work.family)
    touched = sum(operand.bytes for operand in (operator.inputs + operator.outputs)) if operator else 0
    name = work.fields.get("name", work.family)
    return Kernel(name, (1, 1, 1), (1, 1, 1), bytes=touched, operator=operator.name if operator else "")
