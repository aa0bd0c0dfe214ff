"""A guess for a kernel of which only the launch is known: from its bytes if known, otherwise from its blocks."""

from __future__ import annotations

import math

from presim.cost.analytic.gpu_figures import Device
from presim.cost.analytic.memory_bound_kernels import seconds
from presim.cost.analytic.operator_constants import MemoryConstants, find_constants
from presim.cost.price import Origin, Price
from presim.trace.signatures import Kernel, Signature

UNCERTAINTY = 0.9
# The true time may be ten times as long. A product in a Triton kernel with only its bytes known was guessed at a ninth
# of the time of its FLOPs (docs/decisions/generated-kernels.md).
LONGER = 9.0
_THREADS_PER_SM = 2048
_WAVE_US = 2.0  # one wave of resident threads, each with a few loads and stores
_IN_PLACE = 1.5  # its tensors are known, but not which it writes: between one and two passes over all of them
_BYTES_PER_THREAD = 16  # one vector load per thread, if nothing is known


def guess(signature: Signature, device: Device) -> Price:
    """Return a price for any signature; the caller lists it as uncovered."""
    constants, _ = find_constants(MemoryConstants, "memory_bound", device.generation, ("elementwise",))
    moved_bytes = float(getattr(signature, "bytes", 0))
    duration = seconds(moved_bytes * _IN_PLACE, device, constants) if moved_bytes else constants.launch_us * 1e-6
    if isinstance(signature, Kernel) and not moved_bytes:
        threads = math.prod(signature.grid) * math.prod(signature.block)
        waves = math.ceil(threads / (device.sms * _THREADS_PER_SM))
        streaming = threads * _BYTES_PER_THREAD / device.memory_Bps
        duration += max(streaming, (waves - 1) * _WAVE_US * 1e-6)
    flops = signature.flops
    duration = max(duration, flops / (0.3 * device.peak("fp32")) if flops else 0.0)
    bound = "memory" if moved_bytes else "latency"
    duration_ns = max(1, round(duration * 1e9))
    return Price(duration_ns, Origin.GUESSED, UNCERTAINTY, "guess", bound, shared=UNCERTAINTY, longer=LONGER)
