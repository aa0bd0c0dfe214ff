"""GPU figures used by the analytic formulas: bytes, FLOP/s and bytes/s."""

from __future__ import annotations

import dataclasses

from presim.cost.analytic.operator_constants import sustained as _sustained
from presim.hardware import Gpu

_PRECISIONS = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "tf32": "tf32",
    "float64": "fp64",
    "complex128": "fp64",
    "int8": "int8",
    "uint8": "int8",
    "float4_e2m1fn_x2": "fp4",
}
# A precision without its own unit runs on the next one.
_STANDS_IN = {
    "fp4": "fp8",
    "fp8": "bf16",
    "int8": "fp8",
    "tf32": "fp32",
    "fp64": "fp32",
    "bf16": "fp32",
    "fp16": "bf16",
}


def precision(dtype: str, compute: str = "") -> str:
    """Name of the peak that limits a product: bf16, fp16, tf32, fp32, fp64, fp8, fp4 or int8."""
    if dtype == "tf32" or (dtype == "float32" and compute == "tf32"):
        return "tf32"
    return "fp8" if dtype.startswith("float8") else _PRECISIONS.get(dtype, "fp32")


@dataclasses.dataclass(frozen=True)
class Device:
    """GPU figures, one unit per quantity."""

    name: str
    generation: str  # volta, turing, ampere, ada, hopper, blackwell, cdna3, …
    sms: int
    peaks: dict[str, float]  # dense FLOP/s by precision
    memory_Bps: float
    l2_bytes: float
    link_Bps: float  # NVLink, one direction, all links together; 0: none
    host_Bps: float  # to the host's memory, one direction
    clock_hz: float = 0.0  # maximum SM clock
    sustained: float = 1.0  # sustained throughput relative to the generation's measured GPU; lower with less power
    sustained_half: float | None = None  # the same for 16-bit products, if known separately
    attention_generation: str = ""  # compute capability 10.3 has twice the exponentials of 10.0
    burst: bool = False  # idle between kernels, as in operator benchmarks: short kernels run at higher clocks
    tensor_ratio: float = 1.0  # tensor-core peak over vector peak, relative to the generation's measured GPU
    uncertainty_factor: float = 1.0  # factor on the uncertainty if no GPU of this model was measured

    @property
    def throttles(self) -> bool:
        """Whether power limits long products; not on GPUs with reduced tensor throughput, such as the H20."""
        return self.tensor_ratio > _HALF

    def sustained_share(self, kind: str) -> float:
        """Sustained throughput of a precision relative to the generation's measured GPU."""
        if self.sustained_half is None or self.burst or kind not in ("bf16", "fp16"):
            return self.sustained
        return self.sustained_half

    def peak(self, kind: str) -> float:
        """Dense FLOP/s of a precision, or of its fallback if the GPU has no unit for it."""
        while kind not in self.peaks:
            kind = _STANDS_IN[kind]
        return self.peaks[kind]


# Board power per peak bf16 TFLOP/s of the GPU to which each generation's constants were fitted.
_MEASURED_W_PER_TFLOPS = {"ampere": 400 / 312, "ada": 350 / 362, "hopper": 700 / 989, "blackwell": 1000 / 2250}
_MEASURED_W_PER_TFLOPS["blackwell-ultra"] = _MEASURED_W_PER_TFLOPS["blackwell"]
_MEASURED_PER_FP32 = {
    "ada": 362 / 91.6,
    "hopper": 989 / 67,
}  # dense bf16 peak of those GPUs over the peak of their vector units
_HALF = 0.6
_MEASURED = frozenset(("h100-sxm", "h200", "h800", "a100-40gb-sxm", "a100-80gb-sxm", "a800-80gb-sxm", "b200", "l40s"))
_UNCERTAINTY_FACTOR = 1.5  # factor on the uncertainty of other GPUs of a measured generation: a guess


def device_of(gpu: Gpu, *, burst: bool = False) -> Device:
    """Figures of a catalogue entry.

    ``burst``: kernels that run alone, as in the tables to which the constants are fitted. Within a step the GPU is
    busy, and its power limit lowers the clocks.

    A GPU with less power per peak FLOP/s than the measured GPU of its generation sustains less. The exponent is
    uncertain: it was chosen between an A100 PCIe (SimuMax) and an L4 (NeuSight). Where steps on two GPUs were
    published, the table's `sustained` replaces it.
    """
    peaks = {kind: gpu.peak(kind) for kind in ("fp16", "bf16", "fp32", "fp64", "tf32", "fp8", "int8", "fp4")}
    peaks_of_gpu = {kind: peak for kind, peak in peaks.items() if peak}
    reference = _MEASURED_W_PER_TFLOPS.get(gpu.architecture, 0.0)
    tensor = peaks_of_gpu.get("bf16") or peaks_of_gpu.get("fp16") or peaks_of_gpu.get("fp32") or 1e12
    share = min(1.0, (gpu.power_w / (tensor / 1e12) / reference) ** 0.6) if reference else 1.0
    measured = gpu.id in _MEASURED
    vector = peaks_of_gpu.get("fp32", 0.0) * _MEASURED_PER_FP32.get(gpu.architecture, 0.0)
    ultra = gpu.architecture == "blackwell" and gpu.compute_minor == 3
    return Device(
        name=gpu.id,
        generation=gpu.architecture,
        sms=max(gpu.sm_count, 1),
        peaks=peaks_of_gpu,
        memory_Bps=gpu.memory_bytes_per_s,
        l2_bytes=max(gpu.l2_bytes, 1),
        link_Bps=gpu.nvlink_bytes_per_s,
        host_Bps=gpu.host_bytes_per_s,
        clock_hz=gpu.sm_clock_hz,
        sustained=_sustained(gpu.id) or (1.0 if measured else share),
        sustained_half=_sustained(gpu.id, "half"),
        attention_generation="blackwell-ultra" if ultra else gpu.architecture,
        burst=burst,
        tensor_ratio=min(1.0, tensor / vector) if vector else 1.0,
        uncertainty_factor=1.0 if measured else _UNCERTAINTY_FACTOR,
    )
