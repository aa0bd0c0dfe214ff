"""Select what to measure: signatures that can be set up, fit into memory, and are not in the table yet."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Iterable

from presim.cost.profile.calls import FLOATS, calls, is_known
from presim.hardware import Gpu
from presim.trace.dtypes import dtype_bytes
from presim.trace.signatures import (
    Attention,
    Collective,
    Convolution,
    Copy,
    Fused,
    Gemm,
    GroupedGemm,
    Kernel,
    MemoryBound,
    Signature,
    SparseProduct,
)

_BACKENDS = ("flash", "cudnn", "efficient")
_EPILOGUES = ("", "bias", "gelu_bias", "relu_bias")
_FP8 = ("float8_e4m3fn", "float8_e5m2")
_FP8_RESULTS = {
    "": ("bfloat16", "float16", "float32"),
    "outer": ("bfloat16",),
}  # result types, by the scaling of the operands
_FP8_SINCE = (8, 9)  # compute capability
_GROUPED_ON = (9, 10)  # major compute capabilities for which PyTorch has a grouped kernel
_MEMORY_SHARE = 0.8  # maximum share of the GPU's memory for one measurement


@dataclasses.dataclass(frozen=True)
class MeasurementPlan:
    """Work in the order of measurement, and the reasons why the rest is omitted, with counts."""

    work: tuple[Signature, ...]
    num_known: int  # already in the table
    omitted: dict[str, int]


def plan(signatures: Iterable[Signature], measured: Collection[Signature], gpu: Gpu) -> MeasurementPlan:
    """Select the wanted signatures that can be measured and are not known yet, smallest first."""
    omitted: collections.Counter[str] = collections.Counter()
    work: list[Signature] = []
    unique = list(dict.fromkeys(signatures))
    for signature in unique:
        reason = obstacle(signature, gpu)
        if reason:
            omitted[reason] += 1
        elif signature not in measured:
            work.append(signature)
    num_known = sum(signature in measured for signature in unique)
    return MeasurementPlan(tuple(sorted(work, key=footprint)), num_known, dict(sorted(omitted.items())))


def obstacle(signature: Signature, gpu: Gpu) -> str:
    """Why a signature cannot be measured by itself; empty if it can."""
    if footprint(signature) > _MEMORY_SHARE * gpu.memory_bytes:
        return "needs more memory than the card has"
    if isinstance(signature, Collective):
        return "collectives need the cluster: presim fit --nccl-tests"
    if isinstance(signature, Gemm):
        return _product_obstacle(signature, gpu)
    if isinstance(signature, GroupedGemm):
        return _group_obstacle(signature, gpu)
    if isinstance(signature, Attention):
        return _attention_obstacle(signature)
    if isinstance(signature, MemoryBound):
        return _memory_obstacle(signature)
    return _other_obstacle(signature)


def _product_obstacle(signature: Gemm, gpu: Gpu) -> str:
    if signature.sparsity:
        return "products with a 2:4 operand"
    if signature.epilogue not in _EPILOGUES or (signature.epilogue and (signature.batch > 1 or signature.accumulate)):
        return f"products with an epilogue that PyTorch lacks: {signature.epilogue}"
    if signature.dtype in _FP8:
        return _fp8_obstacle(signature, gpu)
    out, is_plain_product = signature.out_dtype or signature.dtype, not (signature.accumulate or signature.epilogue)
    if signature.b_dtype not in ("", signature.dtype):
        return "products of mixed types"
    if signature.dtype == "int8":
        plain = (
            is_plain_product
            and signature.layout == "NT"
            and signature.batch == 1
            and out == "int32"
            and signature.m > 16
        )
        return "" if plain and signature.n % 8 == signature.k % 8 == 0 else "products of int8 other than PyTorch's own"
    if signature.dtype not in FLOATS or signature.compute not in ("float32", "tf32"):
        return f"products of {signature.dtype} that accumulate in {signature.compute}"
    wider = out == "float32" and not signature.epilogue
    return "" if out == signature.dtype or wider else f"products of {signature.dtype} with results in {out}"


def _fp8_obstacle(signature: Gemm, gpu: Gpu) -> str:
    if (gpu.compute_major, gpu.compute_minor) < _FP8_SINCE:
        return "FP8 products, which this GPU does not support"
    types, out = {signature.dtype, signature.b_dtype or signature.dtype}, signature.out_dtype or signature.dtype
    bare = signature.batch == 1 and not signature.accumulate and signature.layout == "NT"
    bare = bare and signature.epilogue in ("", "bias") and (not signature.epilogue or out == "bfloat16")
    has_valid_sizes = signature.k % 16 == signature.n % 16 == 0 and types <= {*_FP8} and types != {"float8_e5m2"}
    plain = bare and has_valid_sizes and signature.scaling in ("", "outer") and out in _FP8_RESULTS[signature.scaling]
    return "" if plain else "FP8 products that PyTorch lacks: block-scaled, accumulating, or in another layout"


def _group_obstacle(signature: GroupedGemm, gpu: Gpu) -> str:
    if gpu.compute_major not in _GROUPED_ON:
        return "grouped products, for which PyTorch has no grouped kernel on this GPU"
    if signature.sizes:
        return "grouped products whose groups differ in size"
    plain = signature.dtype == "bfloat16" and not signature.out_dtype
    return "" if plain and signature.n % 8 == signature.k % 8 == 0 else "grouped products of another type"


def _attention_obstacle(signature: Attention) -> str:
    if signature.backend not in _BACKENDS:
        return f"attention of another backend: {signature.backend}"
    if signature.window or signature.paged:
        return "attention with a window or pages"
    is_recorded = not signature.dropout or signature.backend == "cudnn"
    return "" if is_recorded else "attention with dropout on a backend whose capture does not record it"


def _memory_obstacle(signature: MemoryBound) -> str:
    kind = str(signature.__struct_config__.tag)
    if not is_known(signature):
        return f"operators that are not set up: {signature.operator or kind}"
    return "" if calls(signature) else f"{kind} work whose operands do not follow from its bytes"


def _other_obstacle(signature: SparseProduct | Convolution | Copy | Fused | Kernel) -> str:
    if isinstance(signature, SparseProduct):
        return "products of sparse matrices, whose time depends on where their non-zeros are"
    if isinstance(signature, Convolution):
        plain = signature.dtype in FLOATS and len(signature.input_size) in (1, 2, 3)
        return "" if plain else "convolutions of another type"
    if isinstance(signature, Copy):
        return {"peer": "copies to another GPU", "memset": "memsets, for which PyTorch has no call"}.get(
            signature.direction, ""
        )
    return "generated kernels" if isinstance(signature, Fused) else "kernels known by name only"


def footprint(signature: Signature) -> int:
    """Approximate memory of a measurement in bytes; also the order, so that a short plan has the many small ones."""
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
    if isinstance(signature, GroupedGemm):
        rows = signature.k * (signature.m + signature.groups * signature.n)
        return 2 * (rows + signature.m * signature.n) + 2 * signature.groups * signature.k * signature.m
    table = signature.elements * dtype_bytes(signature.dtype) if isinstance(signature, MemoryBound) else 0
    return 2 * max(int(getattr(signature, "bytes", 0)), table)


def _volume(sizes: Iterable[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total
