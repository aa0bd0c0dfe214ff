"""Memory-bound kernels: elementwise, reductions, normalisation, softmax, optimizers, indexing.

Generated kernels with known instruction counts take the time of their instructions, if that is longer.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from presim.cost.analytic.gpu_figures import Device, precision
from presim.cost.analytic.operator_constants import MemoryConstants, find_constants, table
from presim.cost.price import Origin, Price
from presim.hardware import Gpu
from presim.trace.dtypes import dtype_bytes
from presim.trace.signatures import Fused, MemoryBound, Softmax

_FALLBACKS = {
    "elementwise": ("elementwise",),
    "fused": ("fused", "elementwise"),
    "reduction": ("reduction", "elementwise"),
    "normalization": ("normalization", "elementwise"),
    "softmax": ("softmax", "elementwise"),
    "optimizer": ("optimizer", "elementwise"),
    "index": ("index", "elementwise"),
    "random": ("random", "elementwise"),
    "sort": ("sort", "elementwise"),
}
# Instructions per SM and clock, and transcendental functions and conversions among them (CUDA C++ Programming Guide,
# throughput of native arithmetic instructions, compute capability 7.0 to 10.0).
_LANES, _SPECIAL_LANES = 128, 16
_ISSUED = 0.7  # share reached by kernels whose instructions depend on each other, below the maximum clock: assumed
_ARITHMETIC_UNCERTAINTY = 2.0  # factor on the uncertainty of such a price
# Bandwidth of torch.compile's kernels that transpose, relative to other kernels. Cast to FP8 and its transpose: 1.4 of
# 2.2 TB/s on an H100 (pytorch/pytorch issue 133242). Wider types: a transposed cast's 4.97 (pull request 184121) of
# 5.55 TB/s for norms (pull request 168335) on a B200.
_ACROSS, _ACROSS_WIDER, _ACROSS_UNCERTAINTY = {1: 1.4 / 2.2}, 4.97 / 5.55, 2.0
# Share of the tensor cores' dense peak that products in Triton kernels reach. Triton's tutorials report products and
# attention near cuBLAS and FlashAttention-2, which reach 0.5 to 0.75. 0.6 is assumed for all, with half of it as
# uncertainty.
_TENSOR_SHARE, _TENSOR_UNCERTAINTY = 0.6, 0.5
_SORT_PASSES = 4  # radix sort reads and writes everything once per eight bits of a 32-bit key
_SORT_LAUNCHES = 6


def price(signatures: Sequence[MemoryBound | Fused], device: Device) -> list[Price]:
    """One price per signature, in order."""
    return [_price_one(signature, device) for signature in signatures]


def _price_one(signature: MemoryBound | Fused, device: Device) -> Price:
    kind = _kind(signature)
    constants, borrowed = find_constants(MemoryConstants, "memory_bound", device.generation, _FALLBACKS[kind])
    share, factor = _operator(getattr(signature, "operator", ""), dtype_bytes(signature.dtype) <= 2, device.generation)
    if isinstance(signature, Fused) and signature.across_bytes:
        share, factor = share * _ACROSS.get(signature.across_bytes, _ACROSS_WIDER), max(factor, _ACROSS_UNCERTAINTY)
    if isinstance(signature, Softmax) and signature.row:  # one thread block a row
        share *= min(max(signature.elements / signature.row, 1) / device.sms, 1.0)
    moved_bytes = float(max(signature.bytes, 0))
    if kind == "sort":
        moved_bytes *= _SORT_PASSES
    duration = seconds(moved_bytes, device, constants, share)
    if kind == "sort":
        duration += (_SORT_LAUNCHES - 1) * constants.launch_us * 1e-6
    arithmetic = _arithmetic_s(signature, device)
    products = _products_s(signature, device) if isinstance(signature, Fused) else 0.0
    bound = "compute" if max(arithmetic, products) > duration else "memory"
    arithmetic = max(arithmetic, products)
    duration = max(duration, arithmetic)
    bound = "latency" if duration * 1e6 < 2 * constants.launch_us else bound
    factor = max(factor, _ARITHMETIC_UNCERTAINTY) if bound == "compute" else factor
    width = constants.uncertainty * borrowed * device.uncertainty_factor * factor
    width = _TENSOR_UNCERTAINTY * device.uncertainty_factor if products and products == duration else width
    return Price(max(1, round(duration * 1e9)), Origin.ANALYTIC, min(width, 0.9), f"analytic/{kind}", bound)


def _arithmetic_s(signature: MemoryBound | Fused, device: Device) -> float:
    """Time of a kernel's instructions at their issue rates, if known."""
    flops_s = signature.flops / (0.5 * device.peak("fp32")) if signature.flops else 0.0
    if not isinstance(signature, Fused) or not device.clock_hz:
        return flops_s
    a_second = device.sms * device.clock_hz * _ISSUED
    every = (signature.plain + signature.special + signature.wide) / (_LANES * a_second)
    wide = signature.wide / (0.5 * device.peak("fp64") * _ISSUED)
    return max(flops_s, every, signature.special / (_SPECIAL_LANES * a_second), wide)


def _products_s(signature: Fused, device: Device) -> float:
    """Seconds of the matrix products, in waves of thread blocks over the SMs.

    With no more blocks than SMs, the launch takes as long as the block with the most work.
    """
    busy = sum(flops / device.peak(precision(dtype)) for dtype, flops in signature.products)
    if not signature.programs or not busy:
        return busy / _TENSOR_SHARE
    waves = signature.programs / device.sms
    tail = math.ceil(waves) / waves
    if waves <= 1:
        tail *= signature.longest
    return busy / _TENSOR_SHARE * tail


def _kind(signature: MemoryBound | Fused) -> str:
    """Class whose constants apply. A dropout's backward pass only applies a mask and draws no random numbers."""
    operator = getattr(signature, "operator", "")
    return "elementwise" if operator.endswith("dropout_backward") else str(signature.__struct_config__.tag)


def seconds(moved_bytes: float, device: Device, constants: MemoryConstants, share: float = 1.0) -> float:
    """Launch time, plus bytes over bandwidth, plus a latency of large kernels.

    Data in the L2 cache moves faster, up to the cache's size; the rest moves at most at the datasheet's bandwidth.
    ``share`` scales the efficiency of single operators.
    """
    gain = 1 + (constants.l2_gain - 1) / (1 + (moved_bytes / device.l2_bytes) ** 2)
    streaming = moved_bytes / (device.memory_Bps * constants.efficiency * share * gain)
    streaming = max(streaming, (moved_bytes - device.l2_bytes) / device.memory_Bps)
    ramp = constants.ramp_us * 1e-6 * moved_bytes / (moved_bytes + constants.ramp_MB * 1e6)
    return constants.launch_us * 1e-6 + streaming + ramp


def elementwise_constants(gpu: Gpu) -> MemoryConstants:
    """Constants of elementwise kernels on a GPU, those of the nearest measured generation."""
    constants: MemoryConstants = find_constants(
        MemoryConstants, "memory_bound", gpu.architecture, _FALLBACKS["elementwise"]
    )[0]
    return constants


@functools.cache
def _operator(name: str, narrow: bool, generation: str) -> tuple[float, float]:
    """Efficiency of one operator relative to its class, and the factor on its uncertainty."""
    bare = name.removeprefix("aten::")
    entries = table()["operator"]
    entry = entries.get(bare) or entries.get(bare.removesuffix("_")) or {}
    if generation not in entry.get("generations", (generation,)):
        return 1.0, 1.0
    share = entry.get("narrow_share", 1.0) if narrow else 1.0
    return float(share * entry.get("share", 1.0)), float(entry.get("doubt", 1.0))
