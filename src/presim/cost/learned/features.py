"""Features of a correction: tiles, waves, cache use and peaks of a piece of work on a GPU.

Sizes are in units of the hardware (tiles, waves over the SMs, shares of L2, multiples of the ridge point), so that a
model fitted on one GPU applies to another. All are natural logarithms unless the name states otherwise: ``fill`` is a
share of whole waves or tiles, ``is`` a yes or no.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from presim.cost.analytic import depthwise
from presim.cost.analytic.gpu_figures import Device, precision
from presim.trace.dtypes import dtype_bytes
from presim.trace.signatures import (
    Attention,
    Fused,
    Gemm,
    GroupedGemm,
    MemoryBound,
    Normalization,
    Signature,
    Softmax,
)

Array = NDArray[np.float64]
DECODE_QUERIES = 16  # attention with at most this many queries is decoding, whose kernels are limited by the cache

_TILES = ((128, 128), (128, 256), (256, 128), (64, 64))
PRODUCT = (
    "analytic_us", "m", "n", "k", "batch", "ridge", "l2", "a_l2", "b_l2",
    *(f"{word}_{rows}x{columns}" for rows, columns in _TILES for word in ("waves", "fill")),
    "fill_m128", "fill_n256", "fill_k64", "n_mod_64", "is_transposed_a", "is_transposed_b", "is_accumulate",
)  # fmt: skip
ATTENTION = (
    "analytic_us", "sequences", "q_tiles", "k_tiles", "head_dim", "v_head_dim", "shared_heads", "is_causal", "seen",
    "waves_128", "fill_128", "waves_64", "fill_64", "fill_q128", "ridge", "l2", "is_half", "batch", "window",
    "is_paged", "page_row", "waves_packed", "fill_packed",
)  # fmt: skip
MEMORY = ("analytic_us", "bytes", "l2", "written", "element_bytes", "per_sm_KB")
ROWWISE = (*MEMORY, "row", "rows_per_sm")
USUAL_ROW = 4096  # default of a hidden size or sequence length that the signature lacks


def product_features(signatures: Sequence[Gemm | GroupedGemm], analytic_ns: Array, device: Device) -> Array:
    """One row per product; see `PRODUCT`."""
    sizes = np.array([_product_sizes(signature) for signature in signatures], float).T
    m, n, k, batch, a_size, b_size, out_size, transposed_a, transposed_b, accumulate = sizes
    peaks = np.array([_peak(signature, device) for signature in signatures])
    a, b = batch * m * k * a_size, batch * k * n * b_size
    moved_bytes = a + b + batch * m * n * out_size
    columns = [np.log(analytic_ns / 1e3), *np.log(np.maximum((m, n, k, batch), 1))]
    columns += [np.log(2 * batch * m * n * k / moved_bytes * device.memory_Bps / peaks)]
    columns += [np.log(part / device.l2_bytes) for part in (moved_bytes, a, b)]
    for rows, width in _TILES:
        waves = np.ceil(m / rows) * np.ceil(n / width) * batch / device.sms
        columns += [np.log(waves), waves / np.ceil(waves)]
    columns += [size / (np.ceil(size / tile) * tile) for size, tile in ((m, 128), (n, 256), (k, 64))]
    return np.stack([*columns, n % 64, transposed_a, transposed_b, accumulate], axis=1)


def _product_sizes(signature: Gemm | GroupedGemm) -> tuple[float, ...]:
    size = dtype_bytes(signature.dtype)
    out = dtype_bytes(signature.out_dtype or signature.dtype)
    if isinstance(signature, GroupedGemm):
        groups = max(signature.groups, 1)
        return max(signature.m / groups, 1), max(signature.n, 1), max(signature.k, 1), groups, size, size, out, 0, 0, 0
    other = dtype_bytes(signature.b_dtype or signature.dtype)
    transposed = (signature.layout[0] == "T", signature.layout[-1] == "T")
    sizes = (max(side, 1) for side in (signature.m, signature.n, signature.k, signature.batch))
    return *sizes, size, other, out, *transposed, signature.accumulate


def _peak(signature: Gemm | GroupedGemm | Attention, device: Device) -> float:
    return device.peak(precision(signature.dtype, getattr(signature, "compute", "")))


def attention_features(signatures: Sequence[Attention], analytic_ns: Array, device: Device) -> Array:
    """One row per attention; see `ATTENTION`.

    ``page_row``: bytes between the keys of two tokens in a page, 0 for contiguous tensors. ``packed``: tiles of 128
    rows that share keys, with the queries of several heads per key head packed together.
    """
    rows = [
        (
            max(item.batch, 1), max(item.heads, 1), max(item.kv_heads, 1), max(item.q_len, 1), max(item.kv_len, 1),
            item.head_dim, item.v_head_dim, item.causal, item.window, dtype_bytes(item.dtype), max(item.flops, 1),
            item.paged,
        )
        for item in signatures
    ]  # fmt: skip
    batch, heads, kv_heads, q_len, kv_len, dim, v_dim, causal, window, size, flops, paged = np.array(rows, float).T
    peaks = np.array([_peak(signature, device) for signature in signatures])
    seen = np.where(window > 0, np.minimum(window, kv_len), kv_len)
    moved_bytes = size * batch * (dim + v_dim) * (heads * q_len + kv_heads * seen)
    columns = [np.log(analytic_ns / 1e3), np.log(batch * heads), np.log(q_len / 128), np.log(kv_len / 128)]
    columns += [dim, v_dim, np.log(heads / kv_heads), causal, np.log(seen / kv_len)]
    for tile in (128, 64):
        waves = np.ceil(q_len / tile) * batch * heads / device.sms
        columns += [np.log(waves), waves / np.ceil(waves)]
    columns += [q_len / (np.ceil(q_len / 128) * 128), np.log(flops / moved_bytes * device.memory_Bps / peaks)]
    columns += [np.log(moved_bytes / device.l2_bytes), size == 2, np.log(batch), np.log1p(window), paged]
    columns += [np.where(paged > 0, np.log(kv_heads * dim * size), 0)]
    packed = np.ceil(q_len * heads / kv_heads / 128) * batch * kv_heads / device.sms
    return np.stack([*columns, np.log(packed), packed / np.ceil(packed)], axis=1)


def memory_features(signatures: Sequence[MemoryBound | Fused], analytic_ns: Array, device: Device) -> Array:
    """One row per kernel; see `MEMORY`."""
    moved_bytes = np.array([max(signature.bytes, 1) for signature in signatures], float)
    written = np.array([max(signature.bytes_written, 0) for signature in signatures], float)
    sizes = np.array([dtype_bytes(signature.dtype) for signature in signatures], float)
    columns = [
        np.log(analytic_ns / 1e3),
        np.log(moved_bytes),
        np.log(moved_bytes / device.l2_bytes),
        written / moved_bytes,
        sizes,
    ]
    return np.stack([*columns, np.log(moved_bytes / 1e3 / device.sms)], axis=1)


def rowwise_features(signatures: Sequence[Normalization | Softmax], analytic_ns: Array, device: Device) -> Array:
    """One row per norm or softmax; see `ROWWISE`.

    A warp or a block works on a row, so short rows leave threads idle.
    """
    elements = np.array([max(signature.elements, 1) for signature in signatures], float)
    row = np.array([signature.row or USUAL_ROW for signature in signatures], float)
    row = np.minimum(row, elements)
    columns = [np.log(row), np.log(elements / row / device.sms)]
    return np.concatenate([memory_features(signatures, analytic_ns, device), np.stack(columns, axis=1)], axis=1)


@dataclasses.dataclass(frozen=True)
class WorkClass:
    """One class of work with its own correction models."""

    features: tuple[str, ...]
    rows: Callable[[Sequence[Any], Array, Device], Array]
    # A feature of 0 or 1: rows where it is 1 get extra trees, and only these use the features after it.
    extra_trees_feature: str = ""


_HALF, _FP8 = ("bfloat16", "float16"), ("float8_e4m3fn", "float8_e5m2")
_PRODUCT_KIND, _ATTENTION_KIND = WorkClass(PRODUCT, product_features), WorkClass(ATTENTION, attention_features)
_MEMORY_KIND, _ROWWISE_KIND = WorkClass(MEMORY, memory_features), WorkClass(ROWWISE, rowwise_features)
KINDS: dict[str, WorkClass] = {
    "gemm-half": _PRODUCT_KIND,
    "gemm-fp8": _PRODUCT_KIND,
    "gemm-fp32": _PRODUCT_KIND,
    "grouped-gemm": _PRODUCT_KIND,
    "attention-forward": dataclasses.replace(_ATTENTION_KIND, extra_trees_feature="is_paged"),
    "attention-decode": _ATTENTION_KIND,
    "attention-backward": _ATTENTION_KIND,
    **dict.fromkeys(("elementwise", "index", "reduction"), _MEMORY_KIND),
    **dict.fromkeys(("normalization", "softmax"), _ROWWISE_KIND),
}


def variant(signature: Signature) -> str:
    """Kernel variant within a class, as far as a signature shows: layout, backend or operator."""
    if isinstance(signature, Gemm):
        return signature.layout
    return str(getattr(signature, "backend", getattr(signature, "operator", "")))


def kind_of(signature: Signature) -> str | None:
    """The key of `KINDS` for the models that correct a signature's price, or None."""
    if isinstance(signature, GroupedGemm):
        plain = signature.dtype in _HALF and not signature.sizes and not signature.b_dtype
        return "grouped-gemm" if plain else None
    if isinstance(signature, Gemm) and (signature.sparsity or signature.b_dtype == "uint4"):
        return None  # no table has these
    if isinstance(signature, Gemm):
        if signature.dtype in _HALF:
            return "gemm-half"
        if signature.dtype in _FP8:
            # The tables have CUTLASS with a factor per row and column; cuBLAS with one factor per tensor is faster.
            return "gemm-fp8" if signature.scaling == "outer" else None
        return "gemm-fp32" if signature.dtype == "float32" and signature.compute != "tf32" else None
    if isinstance(signature, Attention):
        if signature.dtype not in _HALF or signature.backend not in ("flash", "flash3", "cudnn"):
            return None
        if signature.direction == "backward":
            return "attention-backward"
        return "attention-decode" if signature.q_len <= DECODE_QUERIES else "attention-forward"
    if depthwise.covers(signature):
        return None
    tag = str(signature.__struct_config__.tag)
    return tag if tag in KINDS else None
