"""The minimum time by a GPU's datasheet; no price is below it."""

from __future__ import annotations

from presim.hardware import Gpu
from presim.trace.signatures import (
    Attention,
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

_WINOGRAD = 4 / 9


def datasheet_ns(signature: Signature, gpu: Gpu) -> float:
    """Minimum time by the datasheet, ns.

    Arithmetic runs at the type's peak. Bytes beyond the L2 cache move at memory bandwidth, and host copies at the
    link's bandwidth. For a kernel known by name only, FLOPs count at the fastest 16-bit peak. Its operator's bytes do
    not count, because it may touch only a part of them.
    """
    arithmetic = 0.0
    if isinstance(signature, (Gemm, GroupedGemm, SparseProduct, Attention, Convolution)):
        tf32 = signature.dtype == "float32" and getattr(signature, "compute", "tf32") == "tf32"
        arithmetic = _flops(signature) / _peak("tf32" if tf32 else signature.dtype, gpu) * 1e9
    if isinstance(signature, Kernel):
        arithmetic = signature.flops / _peak("float16", gpu) * 1e9
    if isinstance(signature, Fused):
        arithmetic = sum(flops / _peak(dtype, gpu) for dtype, flops in signature.products) * 1e9
    moved_bytes = float(signature.bytes) if isinstance(signature, (MemoryBound, Fused, SparseProduct)) else 0.0
    if isinstance(signature, Copy) and signature.direction in ("h2d", "d2h"):
        return signature.bytes / gpu.host_bytes_per_s * 1e9
    return max(arithmetic, (moved_bytes - gpu.l2_bytes) / gpu.memory_bytes_per_s * 1e9)


def _peak(dtype: str, gpu: Gpu) -> float:
    """FLOP/s of a data type, or of its fallback on this GPU; infinite if unknown."""
    peak = gpu.peak(dtype) or gpu.peak("float16") or 0.0
    return max(peak, gpu.peak("float32") or 0.0) or float("inf")


def _flops(signature: Gemm | GroupedGemm | SparseProduct | Attention | Convolution) -> float:
    """FLOPs of any algorithm.

    Data gradients of convolutions count half, because strided ones skip positions. Winograd's tiles of 2 x 2 points
    take 4/9 of the multiplications of 3 x 3 taps.
    """
    if not isinstance(signature, Convolution):
        return float(signature.flops)
    winograd = _WINOGRAD if signature.filter_size == (3, 3) and signature.compute == "float32" else 1.0
    return min(winograd, 0.5 if signature.direction == "backward_data" else 1.0) * signature.flops
