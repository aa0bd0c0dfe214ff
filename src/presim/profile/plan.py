"""What is to be measured: the signatures of a trace or a standard sweep, without what a table already has."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Collection, Iterable, Iterator

from presim.hardware import Gpu
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

_FLOATS = ("bfloat16", "float16", "float32")
_BACKENDS = ("flash", "cudnn", "efficient")
OPERATORS = {  # elementwise operators that can be set up from their bytes: number of operands
    "aten::add": 2, "aten::mul": 2, "aten::sub": 2, "aten::div": 2, "aten::gelu": 1, "aten::silu": 1, "aten::relu": 1,
    "aten::neg": 1, "aten::exp": 1, "aten::tanh": 1, "aten::sigmoid": 1, "aten::add_": 2, "aten::mul_": 2,
}  # fmt: skip
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
        plain = signature.dtype in _FLOATS and signature.b_dtype in ("", signature.dtype)
        return "" if plain and signature.out_dtype in ("", signature.dtype) else "products of mixed or narrow types"
    if isinstance(signature, Attention):
        plain = signature.backend in _BACKENDS and not (signature.window or signature.dropout or signature.paged)
        return "" if plain else "attention with a window, dropout, pages or another backend"
    if isinstance(signature, Elementwise):
        return "" if _plain_elementwise(signature) else "elementwise work whose operands its bytes do not tell"
    if isinstance(signature, (Convolution, Normalization, Softmax, Copy)):
        return _other_obstacle(signature)
    return f"no way to set up {signature.__struct_config__.tag} alone"


def _plain_elementwise(signature: Elementwise) -> bool:
    """As many operands of one type and size as the operator takes."""
    operands = OPERATORS.get(signature.operator, 0)
    size = signature.bytes_written
    return bool(operands) and size > 0 and signature.bytes_read == operands * size and signature.dtype in _FLOATS


def _other_obstacle(signature: Convolution | Normalization | Softmax | Copy) -> str:
    if isinstance(signature, Convolution):
        plain = signature.dtype in _FLOATS and len(signature.input_size) in (1, 2, 3)
        return "" if plain else "convolutions of another type"
    if isinstance(signature, Copy):
        return {"peer": "copies to another GPU", "memset": "memsets, which PyTorch has no call for"}.get(
            signature.direction, ""
        )
    return "" if signature.operator == "" else "a norm or softmax whose rows its bytes do not tell"


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
    for operator, dtype, power in itertools.product(OPERATORS, ("bfloat16", "float32"), range(12, 30, 2)):
        size = (2 if dtype == "bfloat16" else 4) << power
        yield Elementwise(OPERATORS[operator] * size, size, 1 << power, dtype, operator=operator)
    for direction, power in itertools.product(("d2d", "h2d", "d2h"), range(12, 32, 2)):
        yield Copy(direction, 1 << power, pinned=direction in ("h2d", "d2h"))  # type: ignore[arg-type]
