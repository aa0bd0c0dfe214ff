"""The least time that a GPU's datasheet allows: nothing that is priced may be faster."""

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


def datasheet_ns(signature: Signature, gpu: Gpu) -> float:
    """The least time that the datasheet allows, ns.

    Peak of the type for arithmetic; memory bandwidth for what the L2 cache cannot hold; the host's link for copies
    over it. Of a kernel that is known by name only, FLOPs count at the GPU's fastest peak in 16 bits, where they are
    known; the bytes of its operator's tensors do not, because it may touch a part of them.
    """
    arithmetic = 0.0
    if isinstance(signature, (Gemm, GroupedGemm, SparseProduct, Attention, Convolution)):
        tf32 = signature.dtype == "float32" and getattr(signature, "compute", "tf32") == "tf32"
        arithmetic = _flops(signature) / _peak("tf32" if tf32 else signature.dtype, gpu) * 1e9
    if isinstance(signature, Kernel):
        arithmetic = signature.flops / _peak("float16", gpu) * 1e9
    if isinstance(signature, Fused):
        arithmetic = sum(flops / _peak(dtype, gpu) for dtype, flops in signature.products) * 1e9
    moved = float(signature.bytes) if isinstance(signature, (MemoryBound, Fused, SparseProduct)) else 0.0
    if isinstance(signature, Copy) and signature.direction in ("h2d", "d2h"):
        return signature.bytes / gpu.host_bytes_per_s * 1e9
    return max(arithmetic, (moved - gpu.l2_bytes) / gpu.memory_bytes_per_s * 1e9)


def _peak(dtype: str, gpu: Gpu) -> float:
    """FLOP/s of a data type, or of the type that replaces it on this GPU; infinite if unknown."""
    peak = gpu.peak(dtype) or gpu.peak("float16") or 0.0
    return max(peak, gpu.peak("float32") or 0.0) or float("inf")


def _flops(signature: Gemm | GroupedGemm | SparseProduct | Attention | Convolution) -> float:
    """FLOPs that any algorithm needs; convolution data gradients count half, because strided ones skip positions."""
    if isinstance(signature, Convolution) and signature.direction == "backward_data":
        return signature.flops / 2
    return float(signature.flops)
