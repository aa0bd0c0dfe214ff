"""Softmax over rows that a thread block cannot keep: PyTorch's kernel reads each row several times.

Forward it reads a row for its maximum, for its sum and for its result; backward it reads the gradient once more. What
was read before comes from the L2 cache as long as the rows of all resident blocks fit.
"""

from __future__ import annotations

from presim.cost.analytic.gpu_figures import Device
from presim.cost.analytic.operator_constants import MemoryConstants, find_constants
from presim.cost.price import Price, at_least
from presim.hardware.constants import value
from presim.trace.signatures import Signature, Softmax

_KEPT_BYTES = 48 << 10  # of a row, in a block's shared memory: it is read once (ATen/native/cuda/SoftMax.cu)
_BLOCKS_PER_SM = 2  # of 1,024 threads, the largest block, which rows of that length have
_ALL_KEPT, _NONE_KEPT = value("softmax.cached_rows"), value("softmax.streamed_rows")
_OPERATORS = tuple(
    f"aten::{name}" for name in ("_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data")
)


def at_least_passes(signature: Signature, price: Price, device: Device) -> Price:
    """The price, but at least the time of all passes over the rows; measured prices as they are."""
    return at_least(price, passes_ns(signature, device), "memory") if isinstance(signature, Softmax) else price


def passes_ns(signature: Softmax, device: Device) -> float:
    """Launch and memory traffic of a kernel in ns; 0 if its rows are kept, or of another library."""
    if signature.operator not in _OPERATORS or _row_bytes(signature) <= _KEPT_BYTES:
        return 0.0
    missed = min(max((filled_cache(signature, device) - _ALL_KEPT) / (_NONE_KEPT - _ALL_KEPT), 0.0), 1.0)
    again = 1 if "backward" in signature.operator else 2
    moved_bytes = signature.bytes + missed * again * signature.bytes_written
    constants: MemoryConstants = find_constants(MemoryConstants, "memory_bound", device.generation, ("elementwise",))[0]
    return constants.launch_us * 1e3 + moved_bytes / (device.memory_Bps * constants.efficiency) * 1e9


def filled_cache(signature: Softmax, device: Device) -> float:
    """The rows of all resident thread blocks over the L2 cache."""
    resident_rows = min(signature.elements / max(signature.row, 1), device.sms * _BLOCKS_PER_SM)
    return resident_rows * _row_bytes(signature) / device.l2_bytes


def _row_bytes(signature: Softmax) -> float:
    return signature.row * signature.bytes_written / max(signature.elements, 1)
