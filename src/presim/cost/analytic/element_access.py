"""Elementwise kernels that access their operands element by element: bound by instructions, not by memory.

They take a number of SM clocks for each operand and element, as long on an H200 as on an H100.
"""

from __future__ import annotations

import msgspec

from presim.cost.analytic.gpu_figures import Device
from presim.cost.analytic.operator_constants import MemoryConstants, find_constants
from presim.cost.price import Price, at_least
from presim.hardware.constants import value
from presim.trace.signatures import Elementwise, Signature

_STRIDED_CLOCKS, _CAST_CLOCKS = value("elementwise.strided_clocks"), value("elementwise.cast_clocks")
_UNCERTAINTY = value("elementwise.access_uncertainty")
# On Hopper, products in steps with many such kernels are as much too long as these are too short, so both can only
# change together (docs/decisions/element-access.md). Nothing older was measured.
_GENERATIONS = ("blackwell",)


def at_least_instructions(signature: Signature, price: Price, device: Device) -> Price:
    """The price, but at least the time of the kernel's instructions; measured prices as they are."""
    if not isinstance(signature, Elementwise) or device.generation not in _GENERATIONS:
        return price
    raised = at_least(price, instructions_ns(signature, device), "compute")
    if raised is price:
        return price
    width = max(price.uncertainty, min(_UNCERTAINTY * device.uncertainty_factor, 0.9))
    return msgspec.structs.replace(raised, uncertainty=width)


def instructions_ns(signature: Elementwise, device: Device) -> float:
    """Launch and instructions of a kernel in ns; 0 if it loads several elements at once or the clock is not known."""
    clocks = _STRIDED_CLOCKS * signature.strided_operands + _CAST_CLOCKS * signature.cast_operands
    if not clocks or not device.clock_hz:
        return 0.0
    constants: MemoryConstants = find_constants(MemoryConstants, "memory_bound", device.generation, ("elementwise",))[0]
    return constants.launch_us * 1e3 + signature.elements * clocks / (device.sms * device.clock_hz) * 1e9
