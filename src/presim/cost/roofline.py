"""The roofline by the GPU's datasheet alone: no measurement corrects it, so it says what the hardware allows."""

from __future__ import annotations

import math

from presim.cost.bounds import datasheet_ns
from presim.cost.price import Origin, Price
from presim.hardware import Gpu
from presim.trace.dtypes import dtype_bytes
from presim.trace.signatures import Attention, Collective, Copy, Gemm, GroupedGemm, Kernel, Signature

# Steps of Gemma 2B and of a vision transformer took 1.2 to 1.7 times their roofline (TorchSim, table 16).
_LONGER = 0.7
_SHORTER = 0.02  # boost clocks above the datasheet, as in presim.cost.measured.measured_rows


class RooflineEstimator:
    """The longer of arithmetic at the type's peak and every operand once at memory bandwidth; launches are free."""

    name = "roofline"

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu

    def price(self, signatures: list[Signature]) -> list[Price | None]:
        """One price per signature; None for collectives, and for kernels of which neither bytes nor FLOPs are known."""
        return [self._price(signature) for signature in signatures]

    def _price(self, signature: Signature) -> Price | None:
        if isinstance(signature, Collective) or (
            isinstance(signature, Kernel) and not (signature.bytes or signature.flops)
        ):
            return None
        arithmetic_ns, on_host_link = datasheet_ns(signature, self.gpu), _crosses_host_link(signature)
        memory_ns = 0.0 if on_host_link else moved_bytes(signature) / self.gpu.memory_bytes_per_s * 1e9
        bound = "link" if on_host_link else "memory" if memory_ns > arithmetic_ns else "compute"
        duration_ns = max(math.ceil(max(arithmetic_ns, memory_ns)), 1)
        return Price(duration_ns, Origin.ANALYTIC, _SHORTER, self.name, bound, longer=_LONGER)


def _crosses_host_link(signature: Signature) -> bool:
    return isinstance(signature, Copy) and signature.direction in ("h2d", "d2h")


def moved_bytes(signature: Signature) -> float:
    """Bytes that work moves at least: each operand and result once; copies within the GPU are read and written."""
    if isinstance(signature, Gemm):
        elements = signature.m * signature.k + signature.k * signature.n + signature.m * signature.n
        return signature.batch * elements * dtype_bytes(signature.dtype)
    if isinstance(signature, GroupedGemm):
        tokens, weights = signature.m, signature.groups * signature.k * signature.n
        return (tokens * (signature.k + signature.n) + weights) * dtype_bytes(signature.dtype)
    if isinstance(signature, Attention):
        queries = signature.q_len * signature.heads * (signature.head_dim + signature.v_head_dim)
        keys = signature.kv_len * signature.kv_heads * (signature.head_dim + signature.v_head_dim)
        passes = 1 if signature.direction == "forward" else 2  # gradients have the same sizes
        return passes * signature.batch * (queries + keys) * dtype_bytes(signature.dtype)
    if isinstance(signature, Copy):
        return signature.bytes * (2 if signature.direction == "d2d" else 1)
    return float(getattr(signature, "bytes", 0))
