"""Typed constants from `calibration/operators.toml`, and substitutes for hardware without measurements."""

from __future__ import annotations

import functools
from typing import Any, TypeVar

import msgspec

from presim.hardware import constants as calibration
from presim.system.files import to_type
from presim.system.files.field_bounds import (
    Count,
    Microseconds,
    Nanoseconds,
    PositiveCount,
    PositiveGBps,
    PositiveRatio,
    Ratio,
)


class ConstantsOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Source of the constants and their error on points held out from the fit."""

    uncertainty: Ratio  # relative; covers 80 of 100 measured points of every source
    source: str
    points: Count = 0  # held-out points behind `held_out_median`; 0: derived rather than fitted
    held_out_median: Ratio = 0.0  # relative error


class GemmConstants(ConstantsOrigin, frozen=True, kw_only=True):
    """Constants of the formula in `gemm.seconds`."""

    sustained: PositiveRatio  # share of the datasheet's peak that a long, power-limited product sustains
    rise: Ratio  # a short product on an idle GPU reaches `sustained * rise`
    crossover_TFLOP: PositiveRatio  # work at which half of that rise is gone
    small_tile: PositiveRatio  # tile side (elements) below which tensor cores are underused
    quantisation: Ratio  # 1: only whole waves of tiles, 0: perfectly divided work
    sm_load_share: PositiveRatio  # an SM loads at most this multiple of its even share of memory bandwidth
    k_step_ns: Nanoseconds  # minimum time of one step of 64 along k
    tile_overhead_ns: Nanoseconds  # prologue and epilogue of a 128 x 256 tile; half of it for the smallest tile
    memory: PositiveRatio  # share of memory bandwidth
    exchange: PositiveRatio  # partial sums of a split k move at this multiple of memory bandwidth
    blend: PositiveRatio  # exponent of the norm that joins compute and memory time
    split_us: Microseconds  # extra time of a split along k
    launch_us: Microseconds  # minimum duration of the kernel
    busy: PositiveRatio = 1.0  # share of `sustained` that remains within a step, when all of the GPU draws power
    busy_rise: Ratio = 0.0  # share of the rise of short products that remains within a step


class PackedConstants(ConstantsOrigin, frozen=True, kw_only=True):
    """Constants of the formula in `packed_weights.seconds`."""

    start_us: Microseconds  # duration of an empty product
    depth_us: Microseconds  # added where k is 1024
    memory: PositiveRatio  # share of memory bandwidth
    rows: PositiveCount  # of a tile; fewer take as long
    unpacking: PositiveRatio  # time of the arithmetic over that of a 16-bit product
    blend: PositiveRatio  # exponent of the norm that joins arithmetic and memory


class AttentionConstants(ConstantsOrigin, frozen=True, kw_only=True):
    """Constants of the formula in `attention.seconds`."""

    efficiency: PositiveRatio  # share of peak at head dimension 128
    softmax_dim: Ratio  # head dimension at which the exponentials take as long as the products
    tile_overhead: Ratio  # prologue and epilogue of one query tile, in key tiles
    quantisation: Ratio  # as in GemmConstants
    lone: PositiveRatio  # slowdown of the longest query tile when it runs alone
    memory: PositiveRatio
    blend: PositiveRatio
    launch_us: Microseconds
    backward: PositiveRatio = 0.83  # efficiency of the backward pass relative to forward
    backward_products: PositiveRatio = 2.5  # products per exponential in the backward pass, relative to forward
    backward_passes: Ratio = 0.0  # passes over memory by the kernels around the backward pass (`_beside_backward`)
    wide_backward: bool = True  # whether head dimensions above 128 leave too few registers for the backward pass
    window_overhead: Ratio = 0.0  # extra key tiles per query tile where a window limits the visible keys
    decode_launch_us: Microseconds = 12.0
    decode_memory: PositiveRatio = 0.8


class MemoryConstants(ConstantsOrigin, frozen=True, kw_only=True):
    """Constants of the formula in `memory_bound.seconds`."""

    efficiency: PositiveRatio  # share of memory bandwidth of a large kernel
    launch_us: Microseconds
    l2_gain: PositiveRatio = 1.0  # speed-up when everything fits in L2
    ramp_us: Microseconds = 0.0  # extra latency of kernels larger than `ramp_MB`
    ramp_MB: PositiveRatio = 1.0


class ScanConstants(ConstantsOrigin, frozen=True, kw_only=True):
    """Constants of `scan.price`: memory time plus the time of the SMs."""

    memory: PositiveRatio  # share of memory bandwidth
    sm_GBps: PositiveGBps  # GB/s that one SM processes
    launch_us: Microseconds


T = TypeVar("T", bound=ConstantsOrigin)

# Hardware without measurements uses the constants of the first measured generation in its list.
_GENERATIONS = {
    "pascal": ("volta", "ampere"),
    "volta": ("volta", "ampere"),
    "turing": ("turing", "ampere"),
    "ampere": ("ampere",),
    "ada": ("ada", "ampere"),
    "hopper": ("hopper", "ampere"),
    "blackwell": ("blackwell", "hopper"),
    "blackwell-ultra": ("blackwell-ultra", "blackwell", "hopper"),
    "blackwell-rtx": ("ada", "ampere"),
    "cdna3": ("hopper",),
    "cdna4": ("blackwell", "hopper"),
}
BORROWED = 2.0  # factor on the uncertainty of constants from another generation or precision


@functools.cache
def table() -> dict[str, Any]:
    """The whole file as nested dicts."""
    return calibration.read("operators.toml")


def is_measured(generation: str) -> bool:
    """Whether any class of work has constants for this generation."""
    sections = (section for section in table().values() if isinstance(section, dict))
    return any(generation in section for section in sections)


def sustained(gpu: str, column: str = "share") -> float | None:
    """Sustained throughput relative to the generation's measured GPU (``half``: in 16 bits), or None."""
    share = table()["sustained"].get(gpu, {}).get(column)
    return None if share is None else float(share)


@functools.cache
def find_constants(kind: type[T], section: str, generation: str, names: tuple[str, ...]) -> tuple[T, float]:
    """Constants of the first name that has any, nearest generation first; and the factor on their uncertainty."""
    entries: dict[str, Any] = table()[section]
    for name in names:
        for nearest in _GENERATIONS.get(generation, (generation, "hopper", "ampere")):
            entry = entries.get(nearest, {}).get(name)
            if entry is not None:
                factor = 1.0 if (nearest, name) == (generation, names[0]) else BORROWED
                return to_type(entry, kind), factor
    raise KeyError(f"calibration/operators.toml has no [{section}] for {generation} or any of {', '.join(names)}")
