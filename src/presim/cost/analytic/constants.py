"""The constants of `calibration/operators.toml`, typed, and which of them stand in for hardware nobody measured."""

from __future__ import annotations

import functools
from typing import Any, TypeVar

import msgspec

from presim import calibration


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Where constants came from and how well they held on points that the fit had not seen."""

    uncertainty: float  # relative; 80 of 100 measured points of every source lie within
    source: str
    points: int = 0  # held-out points behind `held_out_median`; 0: derived rather than fitted
    held_out_median: float = 0.0  # relative error


class GemmConstants(Calibration, frozen=True, kw_only=True):
    """See `gemm.seconds` for the formula these enter."""

    sustained: float  # share of the datasheet's peak that a long, power-limited product keeps
    rise: float  # a short product on a GPU that has rested reaches `sustained * rise`
    crossover_TFLOP: float  # work at which half of that rise is gone
    small_tile: float  # tile side (elements) below which tensor cores starve
    quantisation: float  # 1: whole waves of tiles only, 0: perfectly shared out
    sm_load_share: float  # an SM loads at most this multiple of its even share of memory bandwidth
    k_step_ns: float  # least time of one step of 64 along k
    tile_overhead_ns: float  # prologue and epilogue of a 128 x 256 tile; half of it for a tiny one
    memory: float  # share of memory bandwidth
    exchange: float  # partial sums of split k travel at this multiple of memory bandwidth
    blend: float  # exponent of the norm that joins compute and memory time
    split_us: float  # extra time of a split along k
    launch_us: float  # least duration of the kernel
    busy: float = 1.0  # share of `sustained` that is left in the midst of a step, where all of the GPU draws power
    busy_rise: float = 0.0  # share of what short products gain that is left there


class AttentionConstants(Calibration, frozen=True, kw_only=True):
    """See `attention.seconds`."""

    efficiency: float  # share of peak at head dimension 128
    softmax_dim: float  # head dimension at which the exponentials cost as much as the products
    tile_overhead: float  # prologue and epilogue of one query tile, in key tiles
    quantisation: float  # as in GemmConstants
    lone: float  # slowdown of the longest query tile when it runs alone
    memory: float
    blend: float
    launch_us: float
    backward: float = 0.83  # backward's efficiency relative to forward's
    backward_products: float = 2.5  # products beside each exponential backward, relative to forward
    backward_passes: float = 0.0  # how often kernels around the backward move what they need (`_beside_backward`)
    wide_backward: bool = True  # head dimensions above 128 leave the backward few registers
    window_overhead: float = 0.0  # further key tiles that a query tile costs where a window bounds what it sees
    decode_launch_us: float = 12.0
    decode_memory: float = 0.8


class MemoryConstants(Calibration, frozen=True, kw_only=True):
    """See `memory_bound.seconds`."""

    efficiency: float  # share of memory bandwidth of a large kernel
    launch_us: float
    l2_gain: float = 1.0  # how much faster than that when everything lies in L2
    ramp_us: float = 0.0  # further latency of kernels larger than `ramp_MB`
    ramp_MB: float = 1.0


class ScanConstants(Calibration, frozen=True, kw_only=True):
    """See `scan.price`: bytes at a share of the bandwidth, and again at what an SM works through."""

    memory: float  # share of memory bandwidth
    sm_GBps: float  # GB/s that one SM works through besides
    launch_us: float


T = TypeVar("T", bound=Calibration)

# Hardware without measurements borrows from the first of these that has any.
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
BORROWED = 2.0  # widens the uncertainty of constants borrowed from another generation or precision


@functools.cache
def table() -> dict[str, Any]:
    """The whole file as nested dicts."""
    return calibration.read("operators.toml")


def is_measured(generation: str) -> bool:
    """Whether any class of work has constants of this generation."""
    sections = (section for section in table().values() if isinstance(section, dict))
    return any(generation in section for section in sections)


def sustained(gpu: str, which: str = "share") -> float | None:
    """What a GPU keeps of its generation's share of the peak (``half``: in 16 bits); None where nothing says."""
    found = table()["sustained"].get(gpu, {}).get(which)
    return None if found is None else float(found)


@functools.cache
def find(kind: type[T], section: str, generation: str, names: tuple[str, ...]) -> tuple[T, float]:
    """The constants of the first name that has any, nearest generation first; and the factor on uncertainty."""
    entries: dict[str, Any] = table()[section]
    for name in names:
        for nearest in _GENERATIONS.get(generation, (generation, "hopper", "ampere")):
            found = entries.get(nearest, {}).get(name)
            if found is not None:
                factor = 1.0 if (nearest, name) == (generation, names[0]) else BORROWED
                return msgspec.convert(found, kind), factor
    raise KeyError(f"calibration/operators.toml has no [{section}] for {generation} and any of {', '.join(names)}")
