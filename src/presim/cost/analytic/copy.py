"""Copies and memsets: by the copy engine over PCIe, by memory within the device, by NVLink to a peer."""

from __future__ import annotations

from collections.abc import Sequence

from presim.cost.analytic.constants import MemoryConstants, find
from presim.cost.analytic.device import Device
from presim.cost.analytic.memory_bound import seconds
from presim.cost.price import Origin, Price
from presim.trace.signatures import Copy

# Duration of the copy as profilers show it. The call itself is host time.
_PCIE_LAUNCH_US = 1.5  # from public H100 and B200 profiles, for copies of a few bytes
_PINNED = 0.84  # share of the link's datasheet bandwidth; packet headers take the rest
_PAGEABLE = 0.35  # the host stages the data through a pinned buffer at an unknown copy speed
_PEER_LAUNCH_US = 3.0
_PEER = 0.8


def price(signatures: Sequence[Copy], device: Device) -> list[Price]:
    """One price per signature, in order."""
    return [_price_one(signature, device) for signature in signatures]


def _price_one(signature: Copy, device: Device) -> Price:
    size = float(max(signature.bytes, 0))
    if signature.direction in ("h2d", "d2h"):
        link = device.host_Bps * (_PINNED if signature.pinned else _PAGEABLE)
        launch, duration, width = _PCIE_LAUNCH_US, size / link, 0.15 if signature.pinned else 0.5
    elif signature.direction == "peer":
        link = (device.link_Bps or device.host_Bps) * _PEER
        launch, duration, width = _PEER_LAUNCH_US, size / link, 0.3
    else:
        name = "memset" if signature.direction == "memset" else "copy"
        constants, borrowed = find(MemoryConstants, "memory_bound", device.generation, (name, "elementwise"))
        launch, width = constants.launch_us, constants.uncertainty * borrowed * device.uncertainty_factor
        moved = size if signature.direction == "memset" else 2 * size
        duration = seconds(moved, device, constants) - launch * 1e-6
    total = launch * 1e-6 + duration
    bound = "latency" if duration * 1e6 < launch else "memory" if signature.direction in ("d2d", "memset") else "link"
    return Price(max(1, round(total * 1e9)), Origin.ANALYTIC, min(width, 0.9), "analytic/copy", bound)
