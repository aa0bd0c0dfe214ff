"""Overheads of a step outside of its priced work: host time, gaps between kernels, small all-reduces."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from presim.errors import InputError
from presim.hardware import Cluster
from presim.serving.serving_plan import ServingPlan
from presim.system.files import FormatError, decode_json, read_bytes
from presim.trace.signatures import Gemm


@dataclasses.dataclass(frozen=True)
class Overheads:
    """Overheads with their sources; `presim calibrate` and options override them."""

    # Scheduling, input preparation and launch of a step, and processing of its output. Estimates, not measured by us.
    host_us: float = 600.0
    host_sequence_us: float = 4.0
    back_us: float = 300.0
    back_sequence_us: float = 6.0
    # HTTP and tokenization before the engine's queue, detokenization and HTTP after it. Their sum is the median of
    # TTFT minus step times in published runs of vLLM and TensorRT-LLM with up to 16 requests in flight
    # (aiconfigurator 095f58a, silicon_sample, 1,024 to 8,192 tokens: 6 to 46 ms). `of_engine` has vLLM's own.
    input_us: float = 24_000.0
    input_token_us: float = 0.0  # for each token of the prompt
    input_load_us: float = 0.0  # for each request of the engine that has not ended
    output_us: float = 1000.0
    # Gap between two kernels of a CUDA graph. Prices include a launch: 14 decoding steps of Llama models on an H100 are
    # priced 2.3 % short to 3.3 % long without a gap (validation/results/serving-h100.md).
    kernel_gap_us: float = 0.0
    # Launch time of one composed kernel without a CUDA graph: steps with more tokens than the largest graph may be
    # launch-bound. vLLM 0.33's model runner on the emulated H100 takes 7.3 ms compiled and 9 to 12 ms eager for the 289
    # kernels of Llama-3-8B, with modules, custom operators and attention metadata. The capturing machine was busy:
    # validation/results/captured-steps.md.
    launch_us: float = 25.0
    eager_launch_us: float = 34.0
    # The same for a layer of a small step with prompts, whose attention lies between two CUDA graphs: 2.8 to 7 ms for
    # the 28 and 32 layers of Qwen3-0.6B and Llama-3-8B there.
    piece_us: float = 140.0
    # Host time of one row of a grammar's token mask (structured output): a round estimate.
    mask_row_us: float = 30.0
    step_scale: float = 1.0  # factor on all device time, from a calibration
    origin: str = "presim's estimates"
    host_origin: str = ""  # of host and back; empty: as origin

    @property
    def calibrated(self) -> bool:
        """Whether the overheads were calibrated with a benchmark of this deployment."""
        return self.origin != "presim's estimates"


# An engine's quantised products beside presim's prices for the same sizes: us that a call takes more, and a ratio.
# Medians over tables of aiconfigurator 095f58a (gemm of vLLM 0.24, SGLang 0.5.14, TensorRT-LLM 1.3; 150 shapes for each
# range of tokens), whose times include the kernel that quantises the input. On Blackwell DeepGEMM takes 11 us more for
# up to 2,048 tokens and as long beyond; FlashInfer has TensorRT-LLM's kernels.
_PRODUCTS = {
    ("hopper", "fp8-block", "deepgemm"): (0.0, 1.35),
    ("hopper", "fp8-block", "flashinfer"): (0.0, 1.35),
    ("blackwell", "fp8-block", "deepgemm"): (11.0, 1.1),
    ("blackwell", "fp8-block", "flashinfer"): (3.5, 1.0),
    ("blackwell", "fp4", "deepgemm"): (0.0, 1.08),
    ("blackwell", "fp4", "flashinfer"): (0.0, 1.08),
}


# (us, us per token of the prompt, us per request in flight) before a request is in its engine's queue, fitted to TTFT
# minus step times of published runs (aiconfigurator 095f58a). vLLM: 165 runs; another 165 are 14.6 % off in the median,
# and 16.9 % with the same time for all. SGLang: 51 runs with warm-up requests, 24.6 % off without such a time; a family
# of models left out of the fit is then 6.7 % (DeepSeek-V3), 18.6 % (GLM-5) and 21.4 % (Qwen3.5) off. Forms were
# chosen on rows of the same table, so gains are optimistic. TensorRT-LLM's runs have no time in common: gpt-oss takes
# 65 ms less than the others.
_FRONT_ENDS = {"vllm": (11_000.0, 2.5, 200.0), "sglang": (65_000.0, 9.2, 940.0)}


def of_engine(kernels: str) -> Overheads:
    """Overheads of an engine that nobody calibrated."""
    if kernels not in _FRONT_ENDS:
        return Overheads()
    request_us, token_us, load_us = _FRONT_ENDS[kernels]
    return Overheads(input_us=request_us, input_token_us=token_us, input_load_us=load_us)


def read(path: Path) -> Overheads:
    """Read the overheads of a calibration file; defaults fill in missing ones."""
    try:
        document = decode_json(read_bytes(path, "use a file that `presim calibrate` wrote"))
        field_names = {field.name for field in dataclasses.fields(Overheads)}
        values = {key: value for key, value in document["overheads"].items() if key in field_names}
        if wrong := [key for key, value in values.items() if not key.endswith("origin") and not _is_time(value)]:
            raise InputError(
                f"{path} has {wrong[0]} = {values[wrong[0]]!r}, which is not a time or factor; calibrate again"
            )
        return Overheads(**values)
    except (FormatError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} has no overheads ({error}); use a file that `presim calibrate` wrote") from error


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9


def product_ns(cluster: Cluster, gemm: Gemm, plan: ServingPlan, ns: float) -> float:
    """Time of an engine's matrix product, ns. ``ns``: presim's price."""
    if gemm.scaling != "block":
        return ns
    library = plan.fp8_products or ("flashinfer" if plan.kernels == "trtllm" else "deepgemm")
    kind = "fp4" if gemm.dtype.startswith("float4") else "fp8-block"
    start_us, ratio = _PRODUCTS.get((cluster.gpu.architecture, kind, library), (0.0, 1.0))
    return start_us * 1e3 + ns * ratio


# Custom all-reduce of engines inside CUDA graphs: (us, us per MB) of the one-shot and the two-shot kernel, fitted to
# vLLM 0.19 to 0.24's times of 256 B, 128 KiB, 1 MiB and 8 MiB (aiconfigurator 095f58a, comm/vllm).
_CUSTOM = {
    ("ampere", 2): ((4.9, 6.1), (0.9, 10.6)),
    ("ampere", 4): ((5.2, 20.0), (4.1, 13.6)),
    ("ampere", 8): ((5.6, 44.0), (6.4, 14.6)),
    ("hopper", 2): ((4.3, 3.9), (3.3, 5.0)),
    ("hopper", 4): ((4.6, 9.2), (7.0, 5.57)),
    ("hopper", 8): ((4.6, 24.4), (10.0, 4.86)),
    ("blackwell", 2): ((6.8, 4.6), (8.1, 4.75)),
    ("blackwell", 4): ((7.0, 8.4), (15.0, 3.34)),
    ("blackwell", 8): ((7.4, 15.3), (13.8, 3.0)),
}
_LARGEST = 8 << 20  # largest message of the custom kernels; NCCL handles larger ones


def all_reduce_ns(cluster: Cluster, ranks: int, size: int) -> float | None:
    """ns of a custom all-reduce; None if engines use NCCL: other GPUs, ranks on several hosts, a large message."""
    lines = _CUSTOM.get((cluster.gpu.architecture, ranks))
    if lines is None or size > _LARGEST or cluster.node.interconnect == "pcie":
        return None
    (first_us, first_slope), (second_us, second_slope) = lines
    megabytes = size / 1e6
    return min(first_us + first_slope * megabytes, second_us + second_slope * megabytes) * 1e3
