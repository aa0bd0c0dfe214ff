"""What is to be measured: the signatures of a trace or a standard sweep, without what a table already has."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Collection, Iterable, Iterator

from presim.hardware import Gpu
from presim.profile.operands import CAST, FLOATS, LAYER_NORM, OPERATORS, plain_elementwise, plain_rows
from presim.trace.dtypes import dtype_bytes
from presim.trace.signatures import (
    Attention,
    Collective,
    Convolution,
    Copy,
    Elementwise,
    Gemm,
    Normalization,
    Signature,
    Softmax,
)

_BACKENDS = ("flash", "cudnn", "efficient")
_SWEPT = (
    "aten::add", "aten::mul", "aten::sub", "aten::div", "aten::gelu", "aten::silu", "aten::relu", "aten::neg",
    "aten::exp", "aten::tanh", "aten::sigmoid", "aten::add_", "aten::mul_",
)  # fmt: skip
_MEMORY_SHARE = 0.8  # of the card's memory that one measurement may take


@dataclasses.dataclass(frozen=True)
class Plan:
    """Work in the order in which it is measured, and why the rest is not, with counts."""

    work: tuple[Signature, ...]
    known: int  # already in the table
    left_out: dict[str, int]


def plan(wanted: Iterable[Signature], known: Collection[Signature], gpu: Gpu) -> Plan:
    """Everything that is wanted, can be set up from its signature, fits, and is not known yet; small work first."""
    left_out: collections.Counter[str] = collections.Counter()
    work: list[Signature] = []
    unique = list(dict.fromkeys(wanted))
    for signature in unique:
        reason = obstacle(signature, gpu)
        if reason:
            left_out[reason] += 1
        elif signature not in known:
            work.append(signature)
    already = sum(signature in known for signature in unique)
    return Plan(tuple(sorted(work, key=footprint)), already, dict(sorted(left_out.items())))


def obstacle(signature: Signature, gpu: Gpu) -> str:
    """Why a signature cannot be measured alone; empty where it can."""
    if footprint(signature) > _MEMORY_SHARE * gpu.memory_bytes:
        return "needs more memory than the card has"
    if isinstance(signature, Collective):
        return "collectives need the cluster: presim fit --nccl-tests"
    if isinstance(signature, Gemm):
        plain = signature.dtype in FLOATS and signature.b_dtype in ("", signature.dtype)
        return "" if plain and signature.out_dtype in ("", signature.dtype) else "products of mixed or narrow types"
    if isinstance(signature, Attention):
        plain = signature.backend in _BACKENDS and not (signature.window or signature.dropout or signature.paged)
        return "" if plain else "attention with a window, dropout, pages or another backend"
    if isinstance(signature, Elementwise):
        return "" if plain_elementwise(signature) else "elementwise work whose operands its bytes do not tell"
    if isinstance(signature, (Convolution, Normalization, Softmax, Copy)):
        return _other_obstacle(signature)
    return f"no way to set up {signature.__struct_config__.tag} alone"


def _other_obstacle(signature: Convolution | Normalization | Softmax | Copy) -> str:
    if isinstance(signature, Convolution):
        plain = signature.dtype in FLOATS and len(signature.input_size) in (1, 2, 3)
        return "" if plain else "convolutions of another type"
    if isinstance(signature, Copy):
        return {"peer": "copies to another GPU", "memset": "memsets, which PyTorch has no call for"}.get(
            signature.direction, ""
        )
    return "" if plain_rows(signature) else "a norm or softmax whose operands its bytes do not tell"


def footprint(signature: Signature) -> int:
    """About how many bytes a measurement takes; also the order, so that a plan cut short has the many small ones."""
    if isinstance(signature, Gemm):
        m, n, k = signature.m, signature.n, signature.k
        return 4 * signature.batch * (m * k + k * n + 2 * m * n)
    if isinstance(signature, Attention):
        rows = signature.heads * signature.q_len + 2 * signature.kv_heads * signature.kv_len
        return 8 * signature.batch * rows * max(signature.head_dim, signature.v_head_dim)
    if isinstance(signature, Convolution):
        points = signature.in_channels * _volume(signature.input_size) + signature.out_channels * _volume(
            signature.output_size
        )
        return 8 * signature.batch * points
    return 2 * int(getattr(signature, "bytes", 0))


def _volume(sizes: Iterable[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


def standard_sweep() -> Iterator[Signature]:
    """What transformer training is made of, on a grid that leaves factors of two to four between its rows."""
    layouts = (("NT", False), ("NN", False), ("TN", False))
    sides = (1024, 2048, 4096, 8192, 14336)
    for (layout, accumulate), rows, n, k in itertools.product(layouts, (512, 2048, 8192, 16384), sides, sides):
        yield Gemm(rows, n, k, 1, "bfloat16", layout=layout, accumulate=accumulate)
    for direction, backend, dim, length in itertools.product(
        ("forward", "backward"), ("flash", "cudnn"), (64, 128), (512, 1024, 2048, 4096, 8192, 16384)
    ):
        for heads, kv_heads in ((16, 16), (32, 8)):
            batch = max(1, 8192 // length)
            yield Attention(direction, batch, heads, kv_heads, length, length, dim, dim, True, "bfloat16", backend)  # type: ignore[arg-type]
    for operator, dtype, power in itertools.product(_SWEPT, ("bfloat16", "float32"), range(12, 30, 2)):
        size = dtype_bytes(dtype) << power
        yield Elementwise(OPERATORS[operator] * size, size, 1 << power, dtype, operator=operator)
    for (source, target), power in itertools.product(
        (("float32", "bfloat16"), ("bfloat16", "float32")), range(12, 30, 2)
    ):
        sizes = dtype_bytes(source) << power, dtype_bytes(target) << power
        yield Elementwise(*sizes, 1 << power, target, operator=CAST)
    for dtype, row, power in itertools.product(("bfloat16", "float32"), (1024, 4096, 16384), range(20, 30, 2)):
        size, weights = dtype_bytes(dtype) << power, 2 * row * dtype_bytes(dtype)
        yield Normalization(size + weights, size + (8 << power) // row, 1 << power, dtype, operator=LAYER_NORM, row=row)
    for rows, row in itertools.product((1024, 4096, 16384), (32000, 128256)):
        size = 4 * rows * row
        yield Softmax(size, size, rows * row, "float32", operator="aten::_log_softmax", row=row)
        yield Softmax(2 * size, size, rows * row, "float32", operator="aten::_log_softmax_backward_data", row=row)
    for direction, power in itertools.product(("d2d", "h2d", "d2h"), range(12, 32, 2)):
        yield Copy(direction, 1 << power, pinned=direction in ("h2d", "d2h"))  # type: ignore[arg-type]
