"""Configuration text of the emulated device: lines ``key value``, keys as in ``shim/core/config.h``."""

from __future__ import annotations

from presim.errors import InputError
from presim.hardware.gpu_schema import Gpu

DRIVER_VERSION = 13000  # as cudaDriverGetVersion says it: CUDA 13.0


def check_is_emulated(gpu: Gpu) -> None:
    """Refuse a device on which no CUDA program runs.

    Raises:
        InputError: it is no GPU, or none of NVIDIA's.
    """
    if not gpu.is_gpu:
        raise InputError(
            f"{gpu.id} ({gpu.name}) is no GPU, so PyTorch's CUDA kernels cannot be captured for it: describe the "
            f"job by its model, `presim compose MODEL --gpu {gpu.id}`, or serve one with `presim serve`."
        )
    if gpu.vendor != "nvidia":
        raise InputError(
            f"{gpu.id} cannot be emulated: name one of NVIDIA's with --gpu and keep the trace with --save DIR, then "
            f"`presim simulate DIR --gpu {gpu.id}`."
        )


def device_config(gpu: Gpu, count: int, driver_version: int = DRIVER_VERSION) -> str:
    """Configuration of ``count`` GPUs of one node: clocks in kHz and memory in bytes, as in CUDA, power in mW."""
    check_is_emulated(gpu)
    values = {
        "name": gpu.name,
        "count": count,
        "compute_major": gpu.compute_major,
        "compute_minor": gpu.compute_minor,
        "sm_count": gpu.sm_count,
        "memory_bytes": gpu.memory_bytes,
        "context_bytes": gpu.context_bytes,
        "l2_bytes": gpu.l2_bytes,
        "clock_khz": gpu.sm_clock_hz // 1000,
        "memory_clock_khz": gpu.memory_clock_hz // 1000,
        "memory_bus_bits": gpu.memory_bus_bits,
        "shared_per_block_optin": gpu.shared_per_block_bytes,
        "shared_per_sm": gpu.shared_per_sm_bytes,
        "registers_per_sm": gpu.registers_per_sm,
        "threads_per_sm": gpu.threads_per_sm,
        "driver_version": driver_version,
        "power_mw": round(1000 * gpu.power_w),
    }
    return "".join(f"{key} {value}\n" for key, value in values.items())
