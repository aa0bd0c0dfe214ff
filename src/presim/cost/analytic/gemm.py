"""Matrix products: tiles run in waves over the SMs, limited by arithmetic or by memory.

The library's choice of tile and split along k is unknown. The formula uses the fastest candidate.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from presim.cost.analytic.gpu_figures import Device, precision
from presim.cost.analytic.operator_constants import GemmConstants, find_constants
from presim.cost.price import Origin, Price
from presim.hardware.constants import value
from presim.trace.dtypes import dtype_bytes
from presim.trace.signatures import Gemm, GroupedGemm

Array = NDArray[np.float64]

_TILES = [
    *((256, 256), (256, 128), (128, 256), (128, 192), (192, 128), (128, 128), (128, 64), (64, 128), (64, 64)),
    *((128, 32), (32, 128), (64, 32), (32, 64), (256, 64), (64, 256), (16, 64), (16, 128), (64, 16), (128, 16)),
    *((64, 8), (128, 8), (8, 64), (8, 128), (32, 32), (16, 16)),
]
_SPLITS = (1, 2, 3, 4, 6, 8, 16, 32)
_ROWS = np.repeat([float(rows) for rows, _ in _TILES], len(_SPLITS))
_COLUMNS = np.repeat([float(columns) for _, columns in _TILES], len(_SPLITS))
_SPLIT = np.tile(np.array(_SPLITS, float), len(_TILES))

_FALLBACKS = {
    "bf16": ("bf16",),
    "fp16": ("bf16",),
    "tf32": ("tf32", "bf16"),
    "fp32": ("fp32",),
    "fp64": ("fp64", "fp32"),
    "fp8": ("fp8", "bf16"),
    "fp4": ("fp4", "fp8", "bf16"),
    "int8": ("fp8", "bf16"),
}
_GROUPED = 1 / value("gemm.grouped")  # time of grouped products relative to batched ones
_TRANSPOSED = 1 / value("gemm.transposed")  # additional factor for weight gradients: both operands are strided
# Transformer Engine and torchao accumulate FP8 gradients precisely by default. On Hopper this interrupts the tensor
# cores and takes 1.1 to 1.2 times as long (pytorch/ao issue 2377). The tables hold fast accumulation.
_PRECISE = {"hopper": 1.15}
# Share of the peak on GPUs with reduced tensor throughput, which are not power-limited: 280 of an H20's 296 TFLOP/s in
# FP8, 140 of 148 in bf16 attention (alibaba/InferSim f2293da).
_UNTHROTTLED = 0.95
# Arithmetic throughput of products with a 2:4 operand over dense ones of the same size; datasheets state 2. A100:
# CUTLASS 484 of 302 TFLOP/s (NVIDIA/cutlass issue 408). H100: cuSPARSELt 1.20 to 1.22 (NVIDIA/CUDALibrarySamples issue
# 203). RTX 4070 Ti Super: 1.38 to 1.40 from 10,240 rows on (pytorch/ao issue 174). Other GPUs use the H100's factor,
# the smallest.
_STRUCTURED = {"ampere": 1.6, "ada": 1.39, "hopper": 1.21}
# cuSPARSELt took 1/1.1 of a dense product's time for sides of 4096 on an A100 (NVIDIA/CUDALibrarySamples issue 57). It
# was slower than dense on H100s without a search for its algorithm (pytorch/pytorch issue 153825).
_STRUCTURED_DOUBT = 3.0
_PRODUCTS_PER_CHUNK = 512  # so that arrays over products and their some 20 tilings stay in the processor's cache
_UNALIGNED = 1.5  # rows that are no multiple of 16 bytes: no TMA or vector loads. A guess, hence the uncertainty


def price(signatures: Sequence[Gemm | GroupedGemm], device: Device) -> list[Price]:
    """One price per signature, in order."""
    prices: dict[Gemm | GroupedGemm, Price] = {}
    kinds = sorted({_precision(signature) for signature in signatures})
    for kind in kinds:
        members = [signature for signature in signatures if _precision(signature) == kind]
        for start in range(0, len(members), _PRODUCTS_PER_CHUNK):
            chunk = members[start : start + _PRODUCTS_PER_CHUNK]
            prices.update(zip(chunk, _price_kind(chunk, kind, device)))
    return [prices[signature] for signature in signatures]


def _price_kind(signatures: list[Gemm | GroupedGemm], kind: str, device: Device) -> list[Price]:
    constants, borrowed = find_constants(GemmConstants, "gemm", device.generation, _FALLBACKS[kind])
    shapes = np.array([shape_of(signature) for signature in signatures], float).T
    peaks = device.peak(kind) * np.array([_structured(signature, device) for signature in signatures])
    total, arithmetic, memory = seconds(
        shapes,
        dataclasses.replace(device, sustained=device.sustained_share(kind)),
        peaks,
        constants,
        _group_imbalance(signatures),
    )
    slow = np.array([_slowdown(signature) * _precision_costs(signature, device) for signature in signatures])
    grouped = np.array([isinstance(signature, GroupedGemm) for signature in signatures])
    factors = np.where(slow > 1.2, 2.0, 1.0) * np.where(grouped, 2.0, 1.0)
    factors *= np.array([_STRUCTURED_DOUBT if getattr(signature, "sparsity", "") else 1.0 for signature in signatures])
    widths = constants.uncertainty * borrowed * device.uncertainty_factor * factors
    launch = constants.launch_us * 1e-6
    bounds = np.where(total < 2 * launch, "latency", np.where(arithmetic >= memory, "compute", "memory"))
    name = "analytic/gemm"
    return [
        Price(max(1, round(duration * 1e9)), Origin.ANALYTIC, min(float(width), 0.9), name, str(bound))
        for duration, width, bound in zip(total * slow, widths, bounds)
    ]


@dataclasses.dataclass(frozen=True)
class Uneven:
    """Extra work of groups of different sizes over groups of equal size; by signature, and optionally by candidate."""

    tiles: Array | float = 1.0  # factor on the number of tiles: the last tile of each group is partly filled
    longest: Array | float = 0.0  # time of the deepest group's tiles beyond the mean, during which nothing else runs


_EVEN = Uneven()


def seconds(
    shapes: Array, device: Device, peak: Array | float, constants: GemmConstants, uneven: Uneven = _EVEN
) -> tuple[Array, Array, Array]:
    """Duration, its arithmetic part and its memory part of products with the columns of ``shapes`` (see `shape_of`).

    ============ =========================================================================================
    arithmetic   waves of tiles, each the slower of its FLOPs, its share of the loads and its steps along k
    memory       every operand once
    duration     (arithmetic^blend + memory^blend)^(1/blend), plus what a split along k exchanges, plus launch
    ============ =========================================================================================
    """
    m, n, k, batch, a_bytes, b_bytes, out_bytes = (row[:, None] for row in shapes)
    peak = np.reshape(peak, (-1, 1))
    efficiency = efficiency_of(2 * m * n * k * batch, device, constants)
    splits = np.minimum(_SPLIT, np.ceil(k / 64))
    depth = np.ceil(k / splits / 32) * 32
    tiles = np.ceil(m / _ROWS) * np.ceil(n / _COLUMNS) * batch * splits * uneven.tiles
    even = tiles / device.sms
    waves = constants.quantisation * np.ceil(even) + (1 - constants.quantisation) * np.maximum(even, 1)
    side = _ROWS * _COLUMNS / (_ROWS + _COLUMNS)
    starved = np.minimum(side / (side + constants.small_tile) * (128 + constants.small_tile) / 128, 1)
    flops = 2 * _ROWS * _COLUMNS * depth / (peak / device.sms * efficiency * starved)
    loads = (_ROWS * a_bytes + _COLUMNS * b_bytes) * depth
    loads = loads / (constants.sm_load_share * device.memory_Bps / device.sms)
    tile = np.maximum(np.maximum(flops, loads), depth / 64 * constants.k_step_ns * 1e-9)
    tile = tile + constants.tile_overhead_ns * 1e-9 * (1 + _ROWS * _COLUMNS / 32768)
    arithmetic = (waves + uneven.longest) * tile
    moved_bytes = batch * (m * k * a_bytes + k * n * b_bytes + m * n * out_bytes)
    memory = moved_bytes / (device.memory_Bps * constants.memory)
    divided = splits > 1
    exchanged = np.where(divided, m * n * batch * 8 * splits, 0) / (device.memory_Bps * constants.exchange)
    power = constants.blend
    joined = (arithmetic**power + memory**power) ** (1 / power)
    candidates = joined + exchanged + np.where(divided, constants.split_us * 1e-6, 0)
    best = candidates.argmin(axis=1)[:, None]
    best_parts = [np.take_along_axis(part, best, 1)[:, 0] for part in (candidates, arithmetic)]
    return best_parts[0] + constants.launch_us * 1e-6, best_parts[1], memory[:, 0]


def efficiency_of(flops: Array, device: Device, constants: GemmConstants) -> Array:
    """Share of the peak that products of so many FLOPs reach; on a resting GPU, short ones run at higher clocks."""
    sustained = constants.sustained * device.sustained * (1 if device.burst else constants.busy)
    lead = min(constants.sustained * constants.rise, 1.0) - sustained
    lead = lead if device.burst else max(lead, 0.0) * constants.busy_rise
    if not device.throttles:
        sustained, lead = _UNTHROTTLED, 0.0
    return sustained + lead / (1 + flops / (constants.crossover_TFLOP * 1e12))


def shape_of(signature: Gemm | GroupedGemm) -> tuple[float, ...]:
    """m, n, k, batch, bytes per element of a and b, and bytes moved per element of the result."""
    out = dtype_bytes(signature.out_dtype or signature.dtype)
    a = _element_bytes(signature.dtype)
    if isinstance(signature, GroupedGemm):
        return *_group_sizes(signature), a, a, out
    if signature.sparsity.endswith("a"):
        a *= _structured_operand_share(a)
    b = _element_bytes(signature.b_dtype or signature.dtype)
    if signature.sparsity.endswith("b"):
        b *= _structured_operand_share(b)
    sizes = (max(size, 1) for size in (signature.m, signature.n, signature.k, signature.batch))
    return *sizes, a, b, out * (2 if signature.accumulate else 1)


def _group_sizes(signature: GroupedGemm) -> tuple[float, float, float, float]:
    """m, n, k of a mean group and the number of groups.

    Empty groups take no time. Divided columns count as divided rows.
    """
    groups = max(signature.groups, 1)
    filled = len(signature.sizes) or groups
    m, n, k = signature.m / groups, float(signature.n), float(signature.k)
    groups_per_filled = groups / filled
    if signature.along == "m":
        m *= groups_per_filled
    elif signature.along == "n":
        m, n = n * groups_per_filled, m
    else:
        k *= groups_per_filled
    return max(m, 1.0), max(n, 1.0), max(k, 1.0), filled


def _group_imbalance(signatures: Sequence[Gemm | GroupedGemm]) -> Uneven:
    """Tiles of groups of different sizes over tiles of as many groups of the mean size."""
    skewed = [signature if isinstance(signature, GroupedGemm) and signature.sizes else None for signature in signatures]
    if not any(skewed):
        return _EVEN
    tiles, longest = np.ones((len(skewed), len(_ROWS))), np.zeros((len(skewed), 1))
    for index, signature in enumerate(skewed):
        if signature is None:
            continue
        sizes = np.array(signature.sizes, float)
        if signature.along == "k":
            longest[index] = sizes.max() / sizes.mean() - 1
        else:
            mean = _group_sizes(signature)[0]
            tiles_by_group = np.ceil(sizes[:, None] * (mean / sizes.mean()) / _ROWS)
            tiles[index] = tiles_by_group.sum(axis=0) / (np.ceil(mean / _ROWS) * len(sizes))
    return Uneven(tiles, longest)


def _structured(signature: Gemm | GroupedGemm, device: Device) -> float:
    """Arithmetic throughput of a product with a 2:4 operand over a dense one."""
    if isinstance(signature, GroupedGemm) or not signature.sparsity:
        return 1.0
    return _STRUCTURED.get(device.generation, _STRUCTURED["hopper"])


def _structured_operand_share(element_bytes: float) -> float:
    """Size of a 2:4 operand over a dense one: half of the values, plus two index bits per value."""
    return 0.5 + 1 / (8 * element_bytes)


def _element_bytes(dtype: str) -> float:
    """Bytes of one element; two 4-bit values share a byte."""
    return 0.5 if dtype in ("float4_e2m1fn_x2", "uint4") else dtype_bytes(dtype)


def _precision(signature: Gemm | GroupedGemm) -> str:
    return precision(signature.dtype, signature.compute if isinstance(signature, Gemm) else "")


def _precision_costs(signature: Gemm | GroupedGemm, device: Device) -> float:
    """Slowdown by accumulation in full float32. Block-scaled operands have their own kernels."""
    if isinstance(signature, GroupedGemm) or signature.scaling == "block":
        return 1.0
    # Without this information in the trace, an e5m2 operand indicates a gradient.
    unsaid = not signature.sums and "float8_e5m2" in (signature.dtype, signature.b_dtype)
    return _PRECISE.get(device.generation, 1.0) if unsaid or signature.sums == "precise" else 1.0


def _slowdown(signature: Gemm | GroupedGemm) -> float:
    """Slowdown of cases without a constant: grouping, strided operands, rows not aligned to 16 bytes."""
    if isinstance(signature, GroupedGemm):
        return _GROUPED
    size = dtype_bytes(signature.dtype)
    slow = _TRANSPOSED if signature.layout == "TN" else 1.0
    rows = (
        signature.k if signature.layout[0] == "N" else signature.m,
        signature.n if signature.layout[-1] == "N" else signature.k,
    )
    small = min(signature.m, signature.n) < 16  # such shapes run on vector kernels without tiles
    return slow if small or size > 2 or all(row * size % 16 == 0 for row in rows) else slow * _UNALIGNED
