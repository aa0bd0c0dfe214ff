"""Convolutions as cuDNN's implicit matrix products. Channels-first layouts are transposed first."""

from __future__ import annotations

import math
from collections.abc import Sequence

from presim.cost.analytic import gemm, memory_bound_kernels
from presim.cost.analytic.gpu_figures import Device
from presim.cost.analytic.operator_constants import MemoryConstants, find_constants
from presim.cost.price import Origin, Price
from presim.trace.dtypes import dtype_bytes
from presim.trace.signatures import Convolution, Gemm

_UNCERTAINTY = 0.4  # no public table to calibrate against: error of the product plus the unknown algorithm
_DEPTHWISE_UNCERTAINTY = 0.6
_IMPLICIT = 1 / 0.85  # gathering the input patches takes address arithmetic and halo loads


def price(signatures: Sequence[Convolution], device: Device) -> list[Price]:
    """One price per signature, in order."""
    return [_price_one(signature, device) for signature in signatures]


def _price_one(signature: Convolution, device: Device) -> Price:
    constants, _ = find_constants(MemoryConstants, "memory_bound", device.generation, ("elementwise",))
    moved_bytes = _bytes(signature)
    streaming = memory_bound_kernels.seconds(moved_bytes, device, constants)
    transpose = 0.0
    if signature.layout == "nchw" and dtype_bytes(signature.dtype) <= 2:
        transpose = streaming  # tensor cores need channels-last: inputs and outputs are transposed
    if _is_depthwise(signature):
        vector = signature.flops / (0.25 * device.peak("fp32"))
        duration, width = max(streaming, vector), _DEPTHWISE_UNCERTAINTY
        bound = "memory" if streaming >= vector else "compute"
    else:
        product = gemm.price([as_product(signature)], device)[0]
        duration = max(product.duration_ns * 1e-9 * _IMPLICIT, streaming) + transpose
        width, bound = max(_UNCERTAINTY, product.uncertainty), product.bound
    return Price(max(1, round(duration * 1e9)), Origin.ANALYTIC, min(width, 0.9), "analytic/convolution", bound)


def as_product(signature: Convolution) -> Gemm:
    """The implicit product: output points by output channels by taps, one per group."""
    points = signature.batch * math.prod(signature.output_size)
    inputs = signature.in_channels // signature.groups
    outputs = signature.out_channels // signature.groups
    taps = inputs * math.prod(signature.filter_size)
    m, n, k = points, outputs, taps
    if signature.direction == "backward_data":
        m, n, k = signature.batch * math.prod(signature.input_size), inputs, outputs * math.prod(signature.filter_size)
        k = max(k // math.prod(signature.stride), 1)
    elif signature.direction == "backward_weight":
        m, n, k = taps, outputs, points
    return Gemm(m=m, n=n, k=k, batch=signature.groups, dtype=signature.dtype, compute=signature.compute)


def _is_depthwise(signature: Convolution) -> bool:
    return signature.groups > 1 and signature.in_channels // signature.groups <= 4


def _bytes(signature: Convolution) -> float:
    """Input, output and filter once."""
    size = dtype_bytes(signature.dtype)
    points = signature.in_channels * math.prod(signature.input_size)
    points += signature.out_channels * math.prod(signature.output_size)
    taps = signature.out_channels * (signature.in_channels // signature.groups) * math.prod(signature.filter_size)
    return float(size * (signature.batch * points + taps))
