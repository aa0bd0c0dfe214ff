"""Gradients of a norm's weights: PyTorch's kernel sums columns in few thread blocks, each over all rows.

A block has 32 columns and takes 256 rows at a time (ATen/native/cuda/layer_norm_kernel.cu), so what it waits for memory
counts, not bandwidth. It takes as long on an H200 as on an H100.
"""

from __future__ import annotations

import math

import msgspec

from presim.cost.analytic.gpu_figures import Device
from presim.cost.analytic.operator_constants import MemoryConstants, find_constants
from presim.cost.price import Origin, Price
from presim.hardware.constants import value
from presim.trace.signatures import Normalization, Signature

_MEASURED = (Origin.MEASURED, Origin.INTERPOLATED)
_GENERATIONS = ("hopper",)  # no other was measured
_OPERATORS = ("aten::native_layer_norm_backward", "aten::_fused_rms_norm_backward")
_COLUMNS, _ROWS, _BLOCKS_PER_SM = 32, 256, 2
_MOST_ROWS = 64 << 10  # beyond, PyTorch divides the rows of narrow norms among blocks, too
_ROWS_US = value("norm.weight_rows_us")


def at_least_rows(signature: Signature, price: Price, device: Device) -> Price:
    """The price, but at least the time in which a block passes all rows; measured prices as they are."""
    if price.origin in _MEASURED or not isinstance(signature, Normalization) or device.generation not in _GENERATIONS:
        return price
    least = rows_ns(signature, device)
    if price.duration_ns >= least:
        return price
    return msgspec.structs.replace(price, duration_ns=math.ceil(least), bound="latency")


def rows_ns(signature: Normalization, device: Device) -> float:
    """Launch and passes of a kernel in ns; 0 for kernels that do not sum over the rows."""
    rows = signature.elements // max(signature.row, 1)
    writes_columns = signature.bytes_written * _ROWS <= signature.bytes_read * 2
    if signature.operator not in _OPERATORS or not signature.row or rows > _MOST_ROWS or not writes_columns:
        return 0.0
    waves = math.ceil(signature.row / _COLUMNS / (device.sms * _BLOCKS_PER_SM))
    constants: MemoryConstants = find_constants(MemoryConstants, "memory_bound", device.generation, ("elementwise",))[0]
    return 1e3 * (constants.launch_us + math.ceil(rows / _ROWS) * waves * _ROWS_US)
