"""Chunked scans of Mamba-2 as mamba-ssm's Triton kernels run them: small products with whole states in memory between.

Each product of a chunk of 128 or 256 tokens with a head's state is only a few tiles, so tensor cores wait for
exponentials and for each other. A GPU with twice the bandwidth is at most a fifth faster.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from presim.cost.analytic.gpu_figures import Device
from presim.cost.analytic.operator_constants import ScanConstants, find_constants
from presim.cost.price import Origin, Price
from presim.trace.signatures import Fused, Kernel, Signature

_NAMES = re.compile(r"_(chunk_(scan|state|cumsum)|bmm_chunk|state_passing)_")


def covers(signature: Signature) -> bool:
    """Whether a signature is one of these kernels and its bytes are known."""
    return isinstance(signature, (Fused, Kernel)) and bool(signature.bytes and _NAMES.match(signature.name))


def price(signatures: Sequence[Fused | Kernel], device: Device) -> list[Price]:
    """One price per signature, in order."""
    return [_price_one(signature, device) for signature in signatures]


def _price_one(signature: Fused | Kernel, device: Device) -> Price:
    constants, borrowed = find_constants(ScanConstants, "scan", device.generation, ("mamba2",))
    streaming = signature.bytes / (device.memory_Bps * constants.memory)
    working = signature.bytes / (device.sms * constants.sm_GBps * 1e9)
    duration = constants.launch_us * 1e-6 + streaming + working
    width = min(constants.uncertainty * borrowed * device.uncertainty_factor, 0.9)
    bound = "memory" if streaming > working else "compute"
    return Price(max(1, round(duration * 1e9)), Origin.ANALYTIC, width, "analytic/scan", bound)
