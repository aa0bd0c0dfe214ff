"""Finds impossible hardware figures: peaks above the units' clock rate, bandwidths above the bus.

It catches sparse peaks in place of dense ones, bits in place of bytes, and totals of both directions in place of one.
"""

from __future__ import annotations

from presim.hardware.gpu_schema import Gpu

# FLOPs (operations) that one SM or compute unit completes per clock, dense, a multiply-add counted as two.
# NVIDIA: "Throughput of native arithmetic instructions" in the CUDA programming guide, and the whitepapers of
# P100, V100, A100, GA102, AD102, H100 and RTX Blackwell. 10.0 and 10.3 are worked out from the HGX B200 and B300
# datasheets at 148 SMs. AMD: CDNA 3 (9.4) and CDNA 4 (9.5) whitepapers; keyed by gfx family.
_RATES: dict[tuple[str, int, int], dict[str, int]] = {
    ("nvidia", 6, 0): {"fp64": 64, "fp32": 128, "fp16": 256},
    ("nvidia", 7, 0): {"fp64": 64, "fp32": 128, "fp16": 1024, "int8": 512},
    ("nvidia", 7, 5): {"fp64": 4, "fp32": 128, "fp16": 1024, "int8": 2048},
    ("nvidia", 8, 0): {"fp64": 64, "fp64_tensor": 128, "fp32": 128, "tf32": 1024, "fp16": 2048, "int8": 4096},
    ("nvidia", 8, 6): {"fp64": 4, "fp32": 256, "tf32": 512, "fp16": 1024, "int8": 2048},
    ("nvidia", 8, 9): {"fp64": 4, "fp32": 256, "tf32": 512, "fp16": 1024, "fp8": 2048, "int8": 2048},
    ("nvidia", 9, 0): {
        "fp64": 128, "fp64_tensor": 256, "fp32": 256, "tf32": 2048, "fp16": 4096, "fp8": 8192, "int8": 8192,
    },
    ("nvidia", 10, 0): {
        "fp64": 128, "fp64_tensor": 128, "fp32": 256, "tf32": 4096, "fp16": 8192, "fp8": 16384, "int8": 16384,
        "fp4": 32768,
    },
    ("nvidia", 10, 3): {
        "fp64": 5, "fp64_tensor": 5, "fp32": 256, "tf32": 4096, "fp16": 8192, "fp8": 16384, "int8": 600, "fp4": 49152,
    },
    ("nvidia", 12, 0): {"fp64": 4, "fp32": 256, "tf32": 512, "fp16": 1024, "fp8": 2048, "int8": 2048, "fp4": 4096},
    ("amd", 9, 4): {
        "fp64": 128, "fp64_tensor": 256, "fp32": 256, "tf32": 1024, "fp16": 2048, "fp8": 4096, "int8": 4096,
    },
    ("amd", 9, 5): {
        "fp64": 128, "fp64_tensor": 128, "fp32": 256, "fp16": 4096, "fp8": 8192, "int8": 8192, "fp4": 16384,
    },
}  # fmt: skip
PEAK_TOLERANCE, BANDWIDTH_TOLERANCE = 0.10, 0.05


def find_impossible_figures(gpu: Gpu) -> list[str]:
    """Physically impossible figures of a GPU, one sentence each."""
    if not gpu.is_gpu:
        return _of_accelerator(gpu)
    problems = []
    width = gpu.memory_bus_bits / 8 * gpu.memory_clock_hz * 2
    if abs(gpu.memory_bytes_per_s / width - 1) > BANDWIDTH_TOLERANCE:
        problems.append(
            f"memory_bandwidth_GBps is {gpu.memory_bytes_per_s / 1e9:.0f}, but {gpu.memory_bus_bits} bits at "
            f"2 x {gpu.memory_clock_hz / 1e6:.0f} MHz carry {width / 1e9:.0f}."
        )
    for dtype, rate in rates(gpu).items():
        peak, possible = getattr(gpu, f"{dtype}_flops"), gpu.sm_count * gpu.sm_clock_hz * rate
        if peak > possible * (1 + PEAK_TOLERANCE):
            problems.append(
                f"the dense {dtype} peak is {peak / 1e12:.1f}, but {gpu.sm_count} SMs at "
                f"{gpu.sm_clock_hz / 1e6:.0f} MHz with {rate} per clock do {possible / 1e12:.1f} (T/s)."
            )
    if gpu.memory_bytes > gpu.nominal_bytes * 1.0738:  # the larger reading of "GB": GiB
        problems.append(f"memory_MiB is more than the {gpu.nominal_bytes / 1e9:.0f} GB it is sold by.")
    if gpu.context_bytes >= gpu.memory_bytes:
        problems.append("context_MiB leaves no memory for the program.")
    return problems


def _of_accelerator(gpu: Gpu) -> list[str]:
    """The same of an accelerator that is no GPU, which has no clock and bus to compare with."""
    problems = []
    ports = gpu.link_ports * gpu.link_port_bytes_per_s
    if ports and abs(gpu.nvlink_bytes_per_s / ports - 1) > BANDWIDTH_TOLERANCE:
        problems.append(
            f"nvlink_GBps is {gpu.nvlink_bytes_per_s / 1e9:.0f}, but {gpu.link_ports} ports of "
            f"{gpu.link_port_bytes_per_s / 1e9:.0f} carry {ports / 1e9:.0f}."
        )
    return problems


def rates(gpu: Gpu) -> dict[str, int]:
    """Operations per clock of one SM by data type; empty for an unknown generation."""
    ops_per_clock = _RATES.get((gpu.vendor, gpu.compute_major, gpu.compute_minor), {})
    return {**ops_per_clock, "bf16": ops_per_clock["fp16"]} if ops_per_clock else {}
