"""Norms whose thread blocks wait for memory: bandwidth does not help, and an H200 takes as long as an H100.

Forward, PyTorch's layer norm has one block of 128 threads for each row. For the gradient of the weights, a block has 32
columns and takes 256 rows at a time (ATen/native/cuda/layer_norm_kernel.cu).
"""

from __future__ import annotations

import math

from presim.cost.analytic.gpu_figures import Device
from presim.cost.analytic.operator_constants import MemoryConstants, find_constants
from presim.cost.price import Price, at_least
from presim.hardware.constants import value
from presim.trace.dtypes import dtype_bytes
from presim.trace.signatures import Normalization, Signature

_GENERATIONS = ("hopper",)  # no other was measured
_FORWARD, _MEASURED_BYTES = "aten::native_layer_norm", 2  # of an element; in fp32 the law is 19 % too long
_BACKWARD = ("aten::native_layer_norm_backward", "aten::_fused_rms_norm_backward")
_COLUMNS, _ROWS, _WIDE_BLOCKS_PER_SM = 32, 256, 2  # of 1,024 threads
_NARROW_BLOCKS_PER_SM = 16  # of 128 threads
_MOST_ROWS = 64 << 10  # beyond, PyTorch divides the rows of narrow norms among blocks, too
_ROWS_US = value("norm.weight_rows_us")
_BLOCK_US, _ELEMENT_NS = value("norm.block_us"), value("norm.element_ns")


def at_least_rows(signature: Signature, price: Price, device: Device) -> Price:
    """The price, but at least the time in which blocks pass all rows; measured prices as they are."""
    if not isinstance(signature, Normalization) or device.generation not in _GENERATIONS:
        return price
    return at_least(price, rows_ns(signature, device), "latency")


def rows_ns(signature: Normalization, device: Device) -> float:
    """Launch and passes of a kernel in ns; 0 for kernels of another kind."""
    if not signature.row:
        return 0.0
    rows, row = signature.elements // signature.row, signature.row
    passes_us = 0.0
    if signature.operator == _FORWARD and dtype_bytes(signature.dtype) <= _MEASURED_BYTES:
        waves = rows / (device.sms * _NARROW_BLOCKS_PER_SM)
        passes_us = waves * (_BLOCK_US + row * _ELEMENT_NS * 1e-3)
    elif signature.operator in _BACKWARD and rows <= _MOST_ROWS and _writes_columns(signature):
        waves = math.ceil(row / _COLUMNS / (device.sms * _WIDE_BLOCKS_PER_SM))
        passes_us = math.ceil(rows / _ROWS) * waves * _ROWS_US
    if not passes_us:
        return 0.0
    constants: MemoryConstants = find_constants(MemoryConstants, "memory_bound", device.generation, ("elementwise",))[0]
    return 1e3 * (constants.launch_us + passes_us)


def _writes_columns(signature: Normalization) -> bool:
    """Whether a backward kernel writes a number or two for each column, and none for each element."""
    return signature.bytes_written * _ROWS <= signature.bytes_read * 2
