"""Time of one layer's routed experts on one rank, with an engine's own kernels.

One call sorts tokens by expert, quantises them, runs the two grouped matrix products and sums the experts' outputs.
With few tokens it is bound by reading the weights of the experts in use: of `count` experts with `chosen` per token, `1
- (1 - chosen / count) ** tokens` are in use. Constants are fitted to published timings of vLLM's, SGLang's and
TensorRT-LLM's kernels (validation/fit_experts.py).
"""

from __future__ import annotations

import dataclasses
import functools
import math

import msgspec

from presim.hardware import Gpu
from presim.hardware import constants as calibration
from presim.system.files import to_type
from presim.system.files.field_bounds import Count, Microseconds, PositiveRatio, Ratio

BYTES = {
    "bf16": 2.0,
    "fp8": 1.0,
    "fp8-block": 1.0 + 4 / 16384,
    "fp4": 0.5 + 1 / 16,
    "int4": 0.5 + 2 / 128,
    "mxfp4-16": 0.5 + 1 / 32,
    "mxfp4-8": 0.5 + 1 / 32,
    "fp4-only": 0.5 + 1 / 16,
    "int8-only": 1.0,
    "int8": 1.0,
}
_PEAKS = {"int8": "int8", "fp8": "fp8", "fp8-block": "fp8", "fp4": "fp4", "mxfp4-8": "fp8"}  # else 16 bits
_NEAR = {
    "fp4-only": "mxfp4-16",
    "int8": "fp8",
    "int8-only": "bf16",
    "fp4": "mxfp4-16",
    "mxfp4": "mxfp4-16",
    "mxfp4-8": "mxfp4-16",
    "mxfp4-16": "fp4",
}
_ENGINES = ("sglang", "vllm", "trtllm")  # fallback order; SGLang uses many kernels of the other two
_NEWEST = ("blackwell", "hopper", "ada", "ampere")


@dataclasses.dataclass(frozen=True)
class Routed:
    """The routed experts of one layer on one rank."""

    tokens: int  # tokens of all ranks that share the experts
    hidden: int
    width: int  # width of an expert's slice on this rank
    top_k: int  # experts per token
    count: int  # experts per layer
    ranks: int  # ranks that share whole experts
    weights: str
    matrices: int = 3  # of an expert; 2: without a gate


class ExpertConstants(msgspec.Struct, frozen=True):
    """Fitted constants of one GPU generation, engine and weight type."""

    start_us: Microseconds  # time of an empty call: sorting, quantising, two products, summing
    doubling_us: Microseconds  # added for each doubling of the tokens
    bandwidth: PositiveRatio  # share of peak memory bandwidth when reading weights
    rate: PositiveRatio  # share of peak tensor-core throughput
    padding: Ratio  # padding rows computed per expert in use
    spread: Ratio  # weight of tokens when estimating experts in use, for uneven routing
    # exponent that combines memory and compute time: 1 adds them, larger values approach their maximum
    blend: PositiveRatio
    imbalance: Ratio  # the fullest rank has `ranks ** imbalance` times the mean load
    uncertainty: Ratio = 0.3  # 80 % of held-out points are within this relative error
    points: Count = 0
    held_out_median: Ratio = 0.0


def busy(work: Routed, spread: float = 1.0) -> float:
    """Expected number of this rank's experts that any token chose."""
    rank_experts = work.count / work.ranks
    rows = work.tokens * work.top_k / work.ranks
    some = rank_experts * (1 - math.pow(1 - work.top_k / work.count, work.tokens * spread))
    return max(some, min(1.0, rows))


def seconds(work: Routed, gpu: Gpu, constants: ExpertConstants) -> float:
    """Time of one layer's experts, s."""
    used = busy(work, constants.spread)
    rows = work.tokens * work.top_k / work.ranks * math.pow(work.ranks, constants.imbalance)
    expert_parameters = work.matrices * work.hidden * work.width
    bytes_moved = used * expert_parameters * BYTES[work.weights] + rows * (4 * work.hidden + 8 * work.width)
    memory = bytes_moved / (gpu.memory_bytes_per_s * constants.bandwidth)
    compute = 2 * expert_parameters * (rows + used * constants.padding) / (_peak(gpu, work.weights) * constants.rate)
    blend = constants.blend
    joined = math.pow(math.pow(memory, blend) + math.pow(compute, blend), 1 / blend)
    return (constants.start_us + constants.doubling_us * math.log2(1 + work.tokens)) * 1e-6 + joined


def least_ns(work: Routed, gpu: Gpu) -> float:
    """Time by the datasheet: weights of the experts in use read once, or products at the peak."""
    expert_parameters = 3 * work.hidden * work.width
    rows = work.tokens * work.top_k / work.ranks
    kind = kind_of(work.weights, gpu)
    memory = busy(work) * expert_parameters * BYTES[kind] / gpu.memory_bytes_per_s
    return max(memory, 2 * expert_parameters * rows / _peak(gpu, kind)) * 1e9


def bound(work: Routed, gpu: Gpu, engine: str) -> str:
    """Its bottleneck: memory or compute, or latency where an empty call takes longer than either."""
    kind = kind_of(work.weights, gpu)
    constants = constants_of(gpu.architecture, engine, kind)
    typed = dataclasses.replace(work, weights=kind)
    start_s = (constants.start_us + constants.doubling_us * math.log2(1 + work.tokens)) * 1e-6
    if start_s > seconds(typed, gpu, constants) / 2:
        return "latency"
    expert_parameters, rows = 3 * work.hidden * work.width, work.tokens * work.top_k / work.ranks
    memory_s = (
        busy(work, constants.spread) * expert_parameters * BYTES[kind] / (gpu.memory_bytes_per_s * constants.bandwidth)
    )
    compute_s = 2 * expert_parameters * rows / (_peak(gpu, kind) * constants.rate)
    return "memory" if memory_s >= compute_s else "compute"


def _peak(gpu: Gpu, weights: str) -> float:
    return gpu.peak(_PEAKS.get(weights, "bf16")) or gpu.peak("bf16") or gpu.peak("fp16") or 1.0


@functools.cache
def _table() -> dict[str, dict[str, dict[str, ExpertConstants]]]:
    return to_type(calibration.read("experts.toml"), dict[str, dict[str, dict[str, ExpertConstants]]])


@functools.cache
def constants_of(architecture: str, engine: str, weights: str) -> ExpertConstants:
    """Constants of an engine's kernels; if not measured, those of another engine, then of another GPU generation."""
    table = _table()
    generations = [architecture, *(name for name in _NEWEST if name != architecture)]
    engines = [engine, *(name for name in _ENGINES if name != engine)]
    for kind in (weights, _NEAR.get(weights, weights), "bf16"):
        for generation in generations:
            for name in engines:
                constants = table.get(generation, {}).get(name, {}).get(kind)
                if constants is not None:
                    return constants
    raise AssertionError("experts.toml has 16-bit constants for every engine; checked by test_experts.py")


def kind_of(weights: str, gpu: Gpu) -> str:
    """The table's key; on GPUs without FP4 tensor cores, 4-bit weights are multiplied with 16-bit activations."""
    if weights == "mxfp4":
        return "mxfp4-8" if gpu.peak("fp4") else "mxfp4-16"
    if weights == "fp4" and not gpu.peak("fp4"):
        return "mxfp4-16"
    return weights


def price(work: Routed, gpu: Gpu, engine: str) -> tuple[float, float]:
    """(time in ns, relative uncertainty) under a served load.

    Tables of kernels route tokens by a power law, whose fullest of eight ranks has up to 3.5 times the mean load.
    Served loads are more even (`serving.expert_imbalance`).
    """
    constants = constants_of(gpu.architecture, engine, work.weights)
    imbalance = min(constants.imbalance, calibration.value("serving.expert_imbalance"))
    served = msgspec.structs.replace(constants, imbalance=imbalance)
    return seconds(work, gpu, served) * 1e9, constants.uncertainty
