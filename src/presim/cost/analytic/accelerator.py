"""Prices on accelerators that are no GPU: arithmetic and memory by the datasheet, joined, plus the start of a kernel.

No cores, tiles and waves are needed. The interval follows from what the device's file says: what products and copies
reach of the datasheet, and what a kernel's start takes, are known or assumed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from presim.cost.analytic import gemm
from presim.cost.analytic.convolution import as_product
from presim.cost.analytic.gpu_figures import Device, precision
from presim.cost.price import Origin, Price
from presim.hardware import Gpu
from presim.trace.dtypes import dtype_bytes
from presim.trace.signatures import (
    Attention,
    Convolution,
    Copy,
    Fused,
    Gemm,
    GroupedGemm,
    MemoryBound,
    Signature,
    Sort,
    SparseProduct,
)

_Product = Gemm | GroupedGemm


@dataclasses.dataclass(frozen=True)
class UncertainFigure:
    """A figure of a device with the relative half-width of its 80 % interval."""

    value: float
    width: float


# Best share of the peak in large products: 0.51 (MI300X) to 0.97 (Gaudi 2), 0.74 on Gaudi 3, over ten accelerators of
# four vendors (stas00/ml-engineering, compute/accelerator/README.md, maximum achievable matmul FLOPS).
_MATRIX = UncertainFigure(0.75, 0.3)
# Large copies reach 0.7 to 0.92 of the datasheet on the GPUs that `calibration/operators.toml` was fitted to.
_MEMORY = UncertainFigure(0.8, 0.2)
_LAUNCH_S = UncertainFigure(
    5e-6, 0.8
)  # kernels of GPUs take 2 to 10 us; compiled programs of accelerators were not measured
_STATED, _STATED_START = 0.1, 0.3  # of shares and starts in the device's file: shapes differ from what was measured
# Fused attention relative to products: 0.5 to 0.75 of the peak on GPUs, where products reach 0.75 to 0.85.
_ATTENTION = UncertainFigure(0.7, 0.2)
_GATHERED = UncertainFigure(0.5, 0.3)  # access by address, and what crosses tensors: the GPUs' tables have 0.3 to 0.8
_SORT_PASSES = 4  # as of GPUs: `memory_bound`
_HOST_SHARE = UncertainFigure(0.8, 0.3)  # of the link to the host's memory
_JOINED = 4.0  # exponent of the norm that joins arithmetic and memory: nearly the longer of both
# No unit for the type: it is computed in the next wider one, or in several passes of the fastest.
_INSTEAD = {
    "fp4": ("fp8", "bf16", "fp16"),
    "fp8": ("bf16", "fp16"),
    "int8": ("fp8", "bf16", "fp16"),
    "bf16": ("fp16", "tf32", "fp32"),
    "fp16": ("bf16", "tf32", "fp32"),
    "tf32": ("fp32",),
}
_PASSES = 6  # products of bfloat16 for one of float32: JAX documentation, jax.lax.Precision.HIGHEST on TPUs
_BORROWED = 0.5


def price(signatures: Sequence[Signature], gpu: Gpu, device: Device) -> list[Price | None]:
    """One price per signature, in order; None for `Collective` and `Kernel`."""
    accelerator = Accelerator(gpu, device)
    prices: dict[Signature, Price | None] = {}
    for signature in signatures:
        if signature not in prices:
            prices[signature] = accelerator.price(signature)
    return [prices[signature] for signature in signatures]


@dataclasses.dataclass(frozen=True)
class Work:
    """Seconds of a kernel's parts, each with the width of its interval."""

    arithmetic: UncertainFigure
    memory: UncertainFigure


class Accelerator:
    """The figures of one device and the formulas on them."""

    def __init__(self, gpu: Gpu, device: Device) -> None:
        self._gpu, self._device = gpu, device
        stated = gpu.share_spread or _STATED
        self._matrix = UncertainFigure(gpu.matrix_share, stated) if gpu.matrix_share else _MATRIX
        self._memory = UncertainFigure(gpu.memory_share, stated) if gpu.memory_share else _MEMORY
        self._launch_s = (
            UncertainFigure(gpu.launch_ns * 1e-9, gpu.share_spread or _STATED_START) if gpu.launch_ns else _LAUNCH_S
        )

    def price(self, signature: Signature) -> Price | None:
        """The price of one signature; None for what has no formula."""
        work, name = self._work(signature)
        if work is None:
            return None
        arithmetic, memory = work.arithmetic.value, work.memory.value
        moving = float((arithmetic**_JOINED + memory**_JOINED) ** (1 / _JOINED))
        start = self._launch_s
        longer = work.arithmetic if arithmetic >= memory else work.memory
        total = moving + start.value
        width = (moving * longer.width + start.value * start.width) / total
        bound = "latency" if moving < start.value else "compute" if arithmetic >= memory else "memory"
        bound = "link" if isinstance(signature, Copy) and signature.direction in ("h2d", "d2h", "peer") else bound
        duration_ns = max(1, round(total * 1e9))
        return Price(duration_ns, Origin.ANALYTIC, min(width, 0.9), f"analytic/{name}", bound, shared=min(width, 0.9))

    def _work(self, signature: Signature) -> tuple[Work | None, str]:
        if isinstance(signature, Convolution):
            return self._product(as_product(signature)), "convolution"
        if isinstance(signature, _Product):
            return self._product(signature), "gemm"
        if isinstance(signature, Attention):
            return self._attention(signature), "attention"
        if isinstance(signature, Copy):
            return self._copy(signature), "copy"
        if isinstance(signature, SparseProduct):
            return self._streaming(float(signature.bytes), signature.flops, signature.dtype, _GATHERED), "sparse"
        if isinstance(signature, (MemoryBound, Fused)):
            passes = _SORT_PASSES if isinstance(signature, Sort) else 1
            irregular = passes > 1 or signature.__struct_config__.tag == "index"
            reach = _GATHERED if irregular else UncertainFigure(1.0, 0.0)
            work = self._streaming(float(signature.bytes) * passes, signature.flops, signature.dtype, reach)
            return self._with_products(work, signature), str(signature.__struct_config__.tag)
        return None, ""

    def _product(self, signature: _Product) -> Work:
        m, n, k, batch, a_bytes, b_bytes, out_bytes = gemm.shape_of(signature)
        side = self._gpu.matrix_side or 1
        flops = 2 * m * batch * _padded(n, side) * _padded(k, side)
        compute = signature.compute if isinstance(signature, Gemm) else ""
        moved_bytes = batch * (m * k * a_bytes + k * n * b_bytes + m * n * out_bytes)
        return Work(self._arithmetic_s(flops, signature.dtype, compute), self._memory_s(moved_bytes))

    def _attention(self, signature: Attention) -> Work:
        rows = signature.heads * signature.q_len * signature.batch
        keys = signature.kv_heads * signature.kv_len * signature.batch
        size = dtype_bytes(signature.dtype) * (signature.head_dim + signature.v_head_dim)
        passes = 2 if signature.direction == "backward" else 1
        arithmetic = self._arithmetic_s(float(signature.flops), signature.dtype, "tf32")
        arithmetic = UncertainFigure(arithmetic.value / _ATTENTION.value, arithmetic.width + _ATTENTION.width)
        return Work(arithmetic, self._memory_s(passes * size * (rows + keys)))

    def _streaming(self, moved_bytes: float, flops: float, dtype: str, reach: UncertainFigure) -> Work:
        """Bytes by the memory's bandwidth, and operations of the vector units where they are counted."""
        memory = self._memory_s(moved_bytes)
        vector = self._gpu.bf16_vector_flops if dtype_bytes(dtype) <= 2 else 0.0
        vector = vector or self._gpu.fp32_flops
        seconds = flops / (vector * self._matrix.value) if vector else 0.0
        return Work(
            UncertainFigure(seconds, self._matrix.width),
            UncertainFigure(memory.value / reach.value, memory.width + reach.width),
        )

    def _with_products(self, work: Work, signature: MemoryBound | Fused) -> Work:
        """The work with the matrix products of a generated kernel."""
        if not isinstance(signature, Fused) or not signature.products:
            return work
        parts = [self._arithmetic_s(float(flops), dtype, "") for dtype, flops in signature.products]
        seconds = sum(part.value for part in parts)
        width = max(part.width for part in parts) + _ATTENTION.width
        return dataclasses.replace(work, arithmetic=UncertainFigure(max(seconds, work.arithmetic.value), width))

    def _copy(self, signature: Copy) -> Work:
        size = float(max(signature.bytes, 0))
        if signature.direction in ("h2d", "d2h", "peer"):
            link_Bps = self._device.host_Bps
            if signature.direction == "peer" and self._device.link_Bps:
                link_Bps = self._device.link_Bps
            return Work(
                UncertainFigure(0.0, 0.0), UncertainFigure(size / (link_Bps * _HOST_SHARE.value), _HOST_SHARE.width)
            )
        return Work(UncertainFigure(0.0, 0.0), self._memory_s(size if signature.direction == "memset" else 2 * size))

    def _arithmetic_s(self, flops: float, dtype: str, compute: str) -> UncertainFigure:
        peaks, kind = self._device.peaks, precision(dtype, compute)
        if kind in peaks:
            return UncertainFigure(flops / (peaks[kind] * self._matrix.value), self._matrix.width)
        wider = next((peaks[other] for other in _INSTEAD.get(kind, ()) if other in peaks), 0.0)
        peak = wider or max(peaks.values()) / _PASSES
        return UncertainFigure(flops / (peak * self._matrix.value), self._matrix.width + _BORROWED)

    def _memory_s(self, moved_bytes: float) -> UncertainFigure:
        return UncertainFigure(moved_bytes / (self._device.memory_Bps * self._memory.value), self._memory.width)


def _padded(size: float, side: int) -> float:
    return math.ceil(size / side) * side
