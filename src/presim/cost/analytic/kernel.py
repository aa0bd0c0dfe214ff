"""A kernel of which only its launch is known: by its bytes where known, else by its blocks. A guess, and wide."""

from __future__ import annotations

import math

from presim.cost.analytic.constants import MemoryConstants, find
from presim.cost.analytic.device import Device
from presim.cost.analytic.memory_bound import seconds
from presim.cost.price import Origin, Price
from presim.trace.signatures import Kernel, Signature

UNCERTAINTY = 0.9
# A guess may be ten times too short: a product in a Triton kernel of which only the bytes were known was guessed at a
# ninth of what its FLOPs take (docs/decisions/generated-kernels.md).
LONGER = 9.0
_THREADS_PER_SM = 2048
_WAVE_US = 2.0  # one wave of resident threads, each with a few loads and stores
_IN_PLACE = 1.5  # its tensors are known, not which of them it writes: between all of them once and all of them twice
_BYTES_PER_THREAD = 16  # one vector load per thread, if nothing is known


def guess(signature: Signature, device: Device) -> Price:
    """A price for any signature; the caller lists it as not covered."""
    constants, _ = find(MemoryConstants, "memory_bound", device.generation, ("elementwise",))
    moved = float(getattr(signature, "bytes", 0))
    duration = seconds(moved * _IN_PLACE, device, constants) if moved else constants.launch_us * 1e-6
    if isinstance(signature, Kernel) and not moved:
        threads = math.prod(signature.grid) * math.prod(signature.block)
        waves = math.ceil(threads / (device.sms * _THREADS_PER_SM))
        streaming = threads * _BYTES_PER_THREAD / device.memory_Bps
        duration += max(streaming, (waves - 1) * _WAVE_US * 1e-6)
    flops = signature.flops
    duration = max(duration, flops / (0.3 * device.peak("fp32")) if flops else 0.0)
    bound = "memory" if moved else "latency"
    found = max(1, round(duration * 1e9))
    return Price(found, Origin.GUESSED, UNCERTAINTY, "guess", bound, shared=UNCERTAINTY, longer=LONGER)
