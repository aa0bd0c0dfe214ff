"""What the analytic formulas need to know of a GPU, in one unit per quantity: bytes, FLOP/s, bytes/s."""

from __future__ import annotations

import dataclasses

from presim.cost.analytic.constants import sustained as _sustained
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
# Where a precision has no unit of its own, the work runs on the next one.
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
    """The peak a product runs against: bf16, fp16, tf32, fp32, fp64, fp8, fp4 or int8."""
    if dtype == "tf32" or (dtype == "float32" and compute == "tf32"):
        return "tf32"
    return "fp8" if dtype.startswith("float8") else _PRECISIONS.get(dtype, "fp32")


@dataclasses.dataclass(frozen=True)
class Device:
    """One GPU."""

    name: str
    generation: str  # volta, turing, ampere, ada, hopper, blackwell, cdna3, …
    sms: int
    peaks: dict[str, float]  # dense FLOP/s by precision
    memory_Bps: float
    l2_bytes: float
    link_Bps: float  # one direction of NVLink, all links together; 0: none
    host_Bps: float  # to the host's memory, one direction
    clock_hz: float = 0.0  # of the SMs, at best
    sustained: float = 1.0  # sustained throughput over that of the generation's measured GPU; lower with less power
    sustained_half: float | None = None  # the same for products in 16 bits, where that is known by itself
    attention_generation: str = ""  # compute capability 10.3 has twice the exponentials of 10.0
    burst: bool = False  # idle between kernels, as in operator benchmarks: short kernels run at higher clocks
    cut: float = 1.0  # peak of its tensor cores against its vector units', relative to the generation's measured GPU
    doubt: float = 1.0  # widens uncertainty where no GPU of this model was measured

    @property
    def throttles(self) -> bool:
        """Whether power limits long products; not on GPUs with reduced tensor throughput, such as the H20."""
        return self.cut > _HALF

    def keeps(self, kind: str) -> float:
        """Sustained throughput of a precision relative to its generation's measured GPU."""
        if self.sustained_half is None or self.burst or kind not in ("bf16", "fp16"):
            return self.sustained
        return self.sustained_half

    def peak(self, kind: str) -> float:
        """Dense FLOP/s of a precision, or of its fallback if the GPU has no unit for it."""
        while kind not in self.peaks:
            kind = _STANDS_IN[kind]
        return self.peaks[kind]


# Board power per peak bf16 TFLOP/s of the GPU that each generation's constants were fitted on.
_MEASURED_W_PER_TFLOPS = {"ampere": 400 / 312, "ada": 350 / 362, "hopper": 700 / 989, "blackwell": 1000 / 2250}
_MEASURED_W_PER_TFLOPS["blackwell-ultra"] = _MEASURED_W_PER_TFLOPS["blackwell"]
_MEASURED_PER_FP32 = {
    "ada": 362 / 91.6,
    "hopper": 989 / 67,
}  # dense bf16 peak of those GPUs by that of their vector units
_HALF = 0.6
_MEASURED = frozenset(("h100-sxm", "h200", "h800", "a100-40gb-sxm", "a100-80gb-sxm", "a800-80gb-sxm", "b200", "l40s"))
_DOUBT = 1.5  # uncertainty of other GPUs of a measured generation: a guess


def device_of(gpu: Gpu, *, burst: bool = False) -> Device:
    """The figures of a catalogue entry.

    A step of a job keeps the GPU busy, and its power limit holds the clocks where long products have them. ``burst``
    is for kernels that run by themselves, which is how the tables were made that the constants are fitted to.

    A GPU with less power for its peak than the one its generation was measured on sustains less. The exponent was
    chosen between an A100 PCIe (SimuMax) and an L4 (NeuSight): doubt stays. Where steps on two GPUs were published,
    `sustained` in the table says what they tell.
    """
    peaks = {kind: gpu.peak(kind) for kind in ("fp16", "bf16", "fp32", "fp64", "tf32", "fp8", "int8", "fp4")}
    known = {kind: peak for kind, peak in peaks.items() if peak}
    reference = _MEASURED_W_PER_TFLOPS.get(gpu.architecture, 0.0)
    tensor = known.get("bf16") or known.get("fp16") or known.get("fp32") or 1e12
    share = min(1.0, (gpu.power_w / (tensor / 1e12) / reference) ** 0.6) if reference else 1.0
    measured = gpu.id in _MEASURED
    vector = known.get("fp32", 0.0) * _MEASURED_PER_FP32.get(gpu.architecture, 0.0)
    ultra = gpu.architecture == "blackwell" and gpu.compute_minor == 3
    return Device(
        name=gpu.id,
        generation=gpu.architecture,
        sms=gpu.sm_count,
        peaks=known,
        memory_Bps=gpu.memory_bytes_per_s,
        l2_bytes=gpu.l2_bytes,
        link_Bps=gpu.nvlink_bytes_per_s,
        host_Bps=gpu.host_bytes_per_s,
        clock_hz=gpu.sm_clock_hz,
        sustained=_sustained(gpu.id) or (1.0 if measured else share),
        sustained_half=_sustained(gpu.id, "half"),
        attention_generation="blackwell-ultra" if ultra else gpu.architecture,
        burst=burst,
        cut=min(1.0, tensor / vector) if vector else 1.0,
        doubt=1.0 if measured else _DOUBT,
    )
