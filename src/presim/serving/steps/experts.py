"""What an engine's kernels of one layer's routed experts take on one rank, few tokens or many.

One call of an engine sorts tokens by expert, quantises them, runs the two grouped products and adds the experts'
outputs up. With few tokens it is bound by reading the weights of those experts that any token chose: of `count`
experts with `chosen` for each token, `1 - (1 - chosen / count) ** tokens` of them. Constants are fitted to tables of
vLLM's, SGLang's and TensorRT-LLM's own kernels (validation/fit_experts.py).
"""

from __future__ import annotations

import dataclasses
import functools
import math

import msgspec

from presim import calibration
from presim.hardware import Gpu

BYTES = {
    "bf16": 2.0,
    "fp8": 1.0,
    "fp8-block": 1.0 + 4 / 16384,
    "fp4": 0.5 + 1 / 16,
    "int4": 0.5 + 2 / 128,
    "mxfp4-16": 0.5 + 1 / 32,
    "mxfp4-8": 0.5 + 1 / 32,
}
_PEAKS = {"fp8": "fp8", "fp8-block": "fp8", "fp4": "fp4", "mxfp4-8": "fp8"}  # else 16 bits
_NEAR = {"fp4": "mxfp4-16", "mxfp4": "mxfp4-16", "mxfp4-8": "mxfp4-16", "mxfp4-16": "fp4"}
_ENGINES = ("sglang", "vllm", "trtllm")  # whose kernels stand in; SGLang takes most from both others
_NEWEST = ("blackwell", "hopper", "ada", "ampere")


@dataclasses.dataclass(frozen=True)
class Routed:
    """The routed experts of one layer on one rank."""

    tokens: int  # of all ranks that share the experts
    hidden: int
    width: int  # of an expert's slice on this rank
    chosen: int  # experts of a token
    count: int  # experts of the layer
    ranks: int  # over which whole experts are spread
    weights: str


class ExpertConstants(msgspec.Struct, frozen=True):
    """Of one generation, engine and type."""

    start_us: float  # of an empty call: sorting, quantising, two products, adding up
    doubling_us: float  # more with each doubling of the tokens
    bandwidth: float  # share of the memory's peak at which weights are read
    rate: float  # share of the tensor cores' peak
    padding: float  # rows that an expert in use computes beside its own
    spread: float  # tokens count so much for how many experts are in use: routing is not even
    blend: float  # exponent that joins memory and compute: 1 adds them, larger takes the longer
    imbalance: float  # the fullest rank has `ranks ** imbalance` of the mean
    uncertainty: float = 0.3  # 80 of 100 held-out points are within
    points: int = 0
    held_out_median: float = 0.0


def busy(work: Routed, spread: float = 1.0) -> float:
    """Experts of this rank that any token chose, on average."""
    here = work.count / work.ranks
    rows = work.tokens * work.chosen / work.ranks
    some = here * (1 - (1 - work.chosen / work.count) ** (work.tokens * spread))
    return max(some, min(1.0, rows))


def seconds(work: Routed, gpu: Gpu, constants: ExpertConstants) -> float:
    """Time of one layer's experts."""
    used = busy(work, constants.spread)
    rows = work.tokens * work.chosen / work.ranks * work.ranks**constants.imbalance
    each = 3 * work.hidden * work.width
    moved = used * each * BYTES[work.weights] + rows * (4 * work.hidden + 8 * work.width)
    memory = moved / (gpu.memory_bytes_per_s * constants.bandwidth)
    compute = 2 * each * (rows + used * constants.padding) / (_peak(gpu, work.weights) * constants.rate)
    joined = (memory**constants.blend + compute**constants.blend) ** (1 / constants.blend)
    return (constants.start_us + constants.doubling_us * math.log2(1 + work.tokens)) * 1e-6 + joined


def _peak(gpu: Gpu, weights: str) -> float:
    return gpu.peak(_PEAKS.get(weights, "bf16")) or gpu.peak("bf16") or gpu.peak("fp16") or 1.0


@functools.cache
def _table() -> dict[str, dict[str, dict[str, ExpertConstants]]]:
    return msgspec.convert(calibration.read("experts.toml"), dict[str, dict[str, dict[str, ExpertConstants]]])


@functools.cache
def constants_of(architecture: str, engine: str, weights: str) -> ExpertConstants:
    """Of an engine's kernels; where nobody measured them, of the nearest: another engine, then another generation."""
    table = _table()
    generations = [architecture, *(name for name in _NEWEST if name != architecture)]
    engines = [engine, *(name for name in _ENGINES if name != engine)]
    for kind in (weights, _NEAR.get(weights, weights), "bf16"):
        for generation in generations:
            for name in engines:
                found = table.get(generation, {}).get(name, {}).get(kind)
                if found is not None:
                    return found
    raise AssertionError("experts.toml has 16 bits of every engine; test_experts.py looks")


def kind_of(weights: str, gpu: Gpu) -> str:
    """The table's word: 4-bit weights meet activations of 16 bits where tensor cores take no 4 bits."""
    if weights == "mxfp4":
        return "mxfp4-8" if gpu.peak("fp4") else "mxfp4-16"
    if weights == "fp4" and not gpu.peak("fp4"):
        return "mxfp4-16"
    return weights


def price(work: Routed, gpu: Gpu, engine: str) -> tuple[float, float]:
    """ns, and the relative uncertainty."""
    constants = constants_of(gpu.architecture, engine, work.weights)
    return seconds(work, gpu, constants) * 1e9, constants.uncertainty
