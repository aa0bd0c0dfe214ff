"""Prices of copies and memsets: over PCIe, within device memory, or over NVLink to a peer.

Durations are those that profilers show for the copy. The call itself is host time. `presim.hardware.constants` has the
sources of the constants (copy.*).
"""

from __future__ import annotations

from collections.abc import Sequence

from presim.cost.analytic.gpu_figures import Device
from presim.cost.analytic.memory_bound_kernels import seconds
from presim.cost.analytic.operator_constants import MemoryConstants, find_constants
from presim.cost.price import Origin, Price
from presim.hardware.constants import value
from presim.trace.signatures import Copy

_PCIE_LAUNCH_US = value("copy.pcie_launch_us")
_PINNED = value("copy.pinned_share")
_PAGEABLE = value("copy.pageable_share")
_PEER_LAUNCH_US = value("copy.peer_launch_us")
_PEER = value("copy.peer_share")


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
        constants, borrowed = find_constants(MemoryConstants, "memory_bound", device.generation, (name, "elementwise"))
        launch, width = constants.launch_us, constants.uncertainty * borrowed * device.uncertainty_factor
        moved_bytes = size if signature.direction == "memset" else 2 * size
        duration = seconds(moved_bytes, device, constants) - launch * 1e-6
    total = launch * 1e-6 + duration
    bound = "latency" if duration * 1e6 < launch else "memory" if signature.direction in ("d2d", "memset") else "link"
    return Price(max(1, round(total * 1e9)), Origin.ANALYTIC, min(width, 0.9), "analytic/copy", bound)
