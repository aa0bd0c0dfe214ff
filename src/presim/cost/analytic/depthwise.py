"""Depthwise convolutions: one filter a channel, whose kernels are bound by their instructions, not by memory.

They take as long on an H200 as on an H100, and as long for 3 x 3 taps as for 7 x 7: a number of SM clocks for each
point of the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from presim.cost.analytic import convolution, memory_bound_kernels
from presim.cost.analytic.gpu_figures import Device
from presim.cost.analytic.operator_constants import MemoryConstants, find_constants
from presim.cost.price import Origin, Price
from presim.trace.dtypes import dtype_bytes
from presim.trace.signatures import Convolution, Elementwise, Signature

# SM clocks for each point. Of cuDNN's kernels: ConvNeXt V2 Huge in bf16 takes 2.0 ms forward and 5.8 ms backward for
# 0.21 billion points, on an H100 and on an H200 (validation/results/h100, h200). Of PyTorch's own kernels for fp32: the
# measured steps of EfficientNet B0 and B4 in TF32 on an A100, less the prices of all other operators
# (validation/convnets.csv).
_CLOCKS = {"forward": 2.3, "backward_data": 3.3, "backward_weight": 3.3}
_OWN_CLOCKS = 6.0
_OWN_FORWARD = ("aten::_conv_depthwise2d", "aten::conv_depthwise3d")
_OWN_BACKWARD = "aten::convolution_backward"  # a launch for each gradient, of half the bytes of both
_UNCERTAINTY = 0.4


def covers(signature: Signature) -> bool:
    """Whether a signature is a depthwise convolution, by cuDNN or by PyTorch's own kernels."""
    if isinstance(signature, Convolution):
        return signature.groups > 1 and signature.in_channels == signature.groups
    return isinstance(signature, Elementwise) and signature.operator in (*_OWN_FORWARD, _OWN_BACKWARD)


def price(signatures: Sequence[Convolution | Elementwise], device: Device) -> list[Price]:
    """One price per signature, in order."""
    return [_price_one(signature, device) for signature in signatures]


def _price_one(signature: Convolution | Elementwise, device: Device) -> Price:
    constants, borrowed = find_constants(MemoryConstants, "memory_bound", device.generation, ("elementwise",))
    moved_bytes = convolution.moved_bytes(signature) if isinstance(signature, Convolution) else float(signature.bytes)
    streaming = memory_bound_kernels.seconds(moved_bytes, device, constants)
    issuing = _clocks(signature) / (device.sms * device.clock_hz) if device.clock_hz else 0.0
    duration = max(streaming, constants.launch_us * 1e-6 + issuing)
    width = min(_UNCERTAINTY * borrowed * device.uncertainty_factor, 0.9) if device.clock_hz else 0.9
    bound = "memory" if streaming >= duration else "compute"
    return Price(max(1, round(duration * 1e9)), Origin.ANALYTIC, width, "analytic/depthwise", bound, shared=width)


def _clocks(signature: Convolution | Elementwise) -> float:
    """SM clocks of all points."""
    if isinstance(signature, Elementwise):
        point_bytes = signature.bytes_read if signature.operator == _OWN_BACKWARD else signature.bytes_written
        return _OWN_CLOCKS * point_bytes / dtype_bytes(signature.dtype)
    backward = signature.direction == "backward_data"
    sizes = signature.input_size if backward else signature.output_size
    channels = signature.in_channels if backward else signature.out_channels
    return _CLOCKS[signature.direction] * signature.batch * channels * math.prod(sizes)
