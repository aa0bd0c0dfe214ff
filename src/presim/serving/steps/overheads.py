"""What a step takes beside the work that signatures describe: the host, gaps between kernels, small all-reduces."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from presim.errors import InputError
from presim.hardware import Cluster


@dataclasses.dataclass(frozen=True)
class Overheads:
    """Each with where it is from; `presim calibrate` and options replace them."""

    # Scheduling, input preparation and launch of a step, and taking its output in. Estimates: nobody timed them here.
    host_us: float = 600.0
    host_sequence_us: float = 4.0
    back_us: float = 300.0
    back_sequence_us: float = 6.0
    # HTTP and tokenization before the engine's queue, detokenization and HTTP behind it. Together the median of what
    # TTFT of published runs of vLLM and TensorRT-LLM at up to 16 requests in flight has beside its steps
    # (aiconfigurator 095f58a, silicon_sample, 1,024 to 8,192 tokens: 6 to 46 ms).
    input_us: float = 24_000.0
    output_us: float = 1000.0
    # Between two kernels of a CUDA graph. Prices are of kernels timed one by one, their own launch within.
    kernel_gap_us: float = 0.0
    # One launch from Python, where no CUDA graph is: steps of more tokens than the largest graph wait for the host.
    launch_us: float = 6.0
    # Of the host, a row of the mask by which a grammar allows tokens (structured output): a round estimate.
    mask_row_us: float = 30.0
    step_scale: float = 1.0  # of all device time: what a calibration found
    origin: str = "presim's estimates"
    host_origin: str = ""  # of host and back; empty: as origin

    @property
    def calibrated(self) -> bool:
        """Whether a benchmark of the deployment itself set them."""
        return self.origin != "presim's estimates"


# Times of engines' kernels over presim's prices for the same sizes, medians over tables of aiconfigurator 095f58a
# (gemm of vLLM 0.24, SGLang 0.5.14, TensorRT-LLM 1.3; 600 to 900 shapes each): products with FP8 factors of blocks, by
# DeepGEMM or TensorRT-LLM
_SLOWER = {
    ("hopper", "product", "fp8-block"): 1.35,
    ("blackwell", "product", "fp8-block"): 1.3,
    ("blackwell", "product", "fp4"): 1.08,
}


def read(path: Path) -> Overheads:
    """Overheads that a calibration wrote, over presim's defaults."""
    try:
        said = json.loads(path.read_text())
        known = {field.name for field in dataclasses.fields(Overheads)}
        found = {key: value for key, value in said["overheads"].items() if key in known}
        if wrong := [key for key, value in found.items() if not key.endswith("origin") and not _is_time(value)]:
            raise InputError(
                f"{path} has {wrong[0]} = {found[wrong[0]]!r}, which is no time or factor; calibrate again"
            )
        return Overheads(**found)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} holds no overheads ({error}); `presim calibrate` writes such a file") from error


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9


def slower(cluster: Cluster, kind: str, weights: str) -> float:
    """What an engine's kernel takes over presim's price."""
    return _SLOWER.get((cluster.gpu.architecture, kind, weights), 1.0)


# Custom all-reduce of engines inside CUDA graphs: (us, us per MB) of the one-shot and of the two-shot kernel. Lines
# through vLLM 0.19 to 0.24's times of 256 B, 128 KiB, 1 MiB and 8 MiB (aiconfigurator 095f58a, comm/vllm).
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
_LARGEST = 8 << 20  # of the custom kernels; larger messages are NCCL's


def all_reduce_ns(cluster: Cluster, ranks: int, size: int) -> float | None:
    """Time of a custom all-reduce; None where there is none: another GPU, more ranks than a host's, a large message."""
    lines = _CUSTOM.get((cluster.gpu.architecture, ranks))
    if lines is None or size > _LARGEST or cluster.node.interconnect == "pcie":
        return None
    (one, one_slope), (two, two_slope) = lines
    megabytes = size / 1e6
    return min(one + one_slope * megabytes, two + two_slope * megabytes) * 1e3
