"""Products of 16-bit rows with weights of 4 bits, which kernels unpack while they multiply.

Machete is vLLM's kernel on Hopper, Marlin that of other GPUs and of SGLang, tinygemm PyTorch's own. bitsandbytes'
kernel is priced by the general formula (`gemm`).

=========== ==============================================================================================
memory      packed weights, their factors, rows and results once
arithmetic  of whole tiles of rows in 16 bits, at `gemm`'s share of the peak, times what unpacking costs
duration    start + depth * sqrt(k / 1024) + (memory^blend + arithmetic^blend)^(1/blend)
=========== ==============================================================================================

The term with k is for kernels that divide it among SMs, the more of it the deeper, and then join the sums.
validation/gpu/fit_packed_weights.py fits the constants.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from presim.cost.analytic import gemm
from presim.cost.analytic.gpu_figures import Device
from presim.cost.analytic.operator_constants import BORROWED, GemmConstants, PackedConstants, find_constants
from presim.cost.price import Origin, Price
from presim.trace.signatures import MACHETE, MARLIN, NF4, TINYGEMM, Gemm, GroupedGemm, Signature

NAME = "analytic/packed-weights"
_MEASURED = "hopper"  # the generation whose kernels were timed; others are taken to reach the same shares
_FACTORS = 2 / 128  # bytes of factors for each weight, in groups of 128
_GROUPED_DOUBT = 2.0  # factor on the uncertainty of routed experts, to which nothing was fitted
# tinygemm unpacks the weights again for every few rows. On an H100 it has 28.7 TFLOP/s from 16 to 512 rows, 110 a clock
# and SM; for one row it reads its weights at 1.6 TB/s (validation/results/gpu-quantised.md). Other GPUs are taken to do
# as many a clock, which is an assumption.
_TINYGEMM_FLOPS, _TINYGEMM_MEMORY, _TINYGEMM_UNCERTAINTY = 110, 0.47, 0.2


def covers(signature: Signature) -> bool:
    """Whether it is a product that is priced here."""
    if isinstance(signature, GroupedGemm):
        return bool(signature.b_dtype)
    return isinstance(signature, Gemm) and signature.b_dtype == "uint4" and signature.scaling != NF4


def price(signatures: Sequence[Gemm | GroupedGemm], device: Device) -> list[Price]:
    """One price per signature, in order."""
    return [
        _tinygemm(signature, device)
        if isinstance(signature, Gemm) and signature.scaling == TINYGEMM
        else _unpacking(signature, device)
        for signature in signatures
    ]


def kernel_of(signature: Gemm | GroupedGemm, device: Device) -> str:
    """The kernel that runs it."""
    if isinstance(signature, GroupedGemm):
        return MARLIN
    return signature.scaling or (MACHETE if device.generation == "hopper" else MARLIN)


def _unpacking(signature: Gemm | GroupedGemm, device: Device) -> Price:
    constants, _ = find_constants(PackedConstants, "packed_weights", _MEASURED, (kernel_of(signature, device),))
    total, arithmetic, memory = seconds(signature, device, constants)
    borrowed = 1.0 if device.generation == _MEASURED else BORROWED
    width = constants.uncertainty * borrowed * device.uncertainty_factor
    width *= _GROUPED_DOUBT if isinstance(signature, GroupedGemm) else 1.0
    bound = "latency" if 2 * max(arithmetic, memory) < total else "compute" if arithmetic >= memory else "memory"
    return Price(max(1, round(total * 1e9)), Origin.ANALYTIC, min(width, 0.9), NAME, bound)


def seconds(signature: Gemm | GroupedGemm, device: Device, constants: PackedConstants) -> tuple[float, float, float]:
    """Duration, its arithmetic part and its memory part."""
    m, n, k = signature.m, signature.n, signature.k
    count = signature.groups if isinstance(signature, GroupedGemm) else signature.batch
    rows_per_product = m / count if isinstance(signature, GroupedGemm) else m  # rows of a product
    moved_bytes = count * (n * k * (0.5 + _FACTORS) + 2 * rows_per_product * k + 2 * rows_per_product * n)
    memory = moved_bytes / (device.memory_Bps * constants.memory)
    half, _ = find_constants(GemmConstants, "gemm", device.generation, ("bf16",))
    work = 2.0 * math.ceil(rows_per_product / constants.rows) * constants.rows * n * k * count
    share = float(gemm.efficiency_of(np.array(work), device, half))
    arithmetic = work * constants.unpacking / (device.peak("bf16") * share)
    power = constants.blend
    joined = (arithmetic**power + memory**power) ** (1 / power)
    fixed = constants.start_us + constants.depth_us * math.sqrt(k / 1024)
    return joined + fixed * 1e-6, arithmetic, memory


def _tinygemm(signature: Gemm, device: Device) -> Price:
    """The slower of its arithmetic and of reading its operands, plus the launch."""
    m, n, k = signature.m, signature.n, signature.k
    constants, _ = find_constants(GemmConstants, "gemm", device.generation, ("bf16",))
    memory = (m * k * 2 + n * k * 0.5 + m * n * 2) / (device.memory_Bps * _TINYGEMM_MEMORY)
    arithmetic = signature.flops / (_TINYGEMM_FLOPS * device.sms * device.clock_hz) if device.clock_hz else 0.0
    total = max(memory, arithmetic) + constants.launch_us * 1e-6
    width = _TINYGEMM_UNCERTAINTY * (1 if device.generation == "hopper" else 3)
    bound = "compute" if arithmetic > memory else "memory"
    return Price(max(1, round(total * 1e9)), Origin.ANALYTIC, min(width, 0.9), NAME, bound)
