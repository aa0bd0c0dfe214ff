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

_UNCERTAINTY = 0.3  # of convolutions in the steps of validation/convnets.csv, whose other operators are known better
_NARROW_UNCERTAINTY = 0.6
# Passes over inputs and outputs that turn channels-first tensors for tensor cores and back; reading and writing each
# would be two. cuDNN has TF32 products that want no other order, so some are left out: the steps of ResNet-50 and
# ResNeXt-101 on an A100 leave 1.5 to 1.7 (cuDNN 8.1), those of nnU-Net 0.1 to 0.6 (8.7). For 16 bits, nnU-Net in two
# dimensions leaves 1.4 to 2.2 (validation/convnets.csv).
_TRANSPOSES, _TF32_TRANSPOSES = 1.6, 1.0
# Winograd's products of 3 x 3 taps in fp32 have 2.25 times fewer multiplications, and sums before and after them. Steps
# of nnU-Net in two dimensions on a V100 leave a gain of 2.0.
_WINOGRAD = 2.0
_IMPLICIT = 1 / 0.85  # gathering the input patches takes address arithmetic and halo loads


def price(signatures: Sequence[Convolution], device: Device) -> list[Price]:
    """One price per signature, in order."""
    return [_price_one(signature, device) for signature in signatures]


def _price_one(signature: Convolution, device: Device) -> Price:
    constants, _ = find_constants(MemoryConstants, "memory_bound", device.generation, ("elementwise",))
    bytes_once = moved_bytes(signature)
    streaming = memory_bound_kernels.seconds(bytes_once, device, constants)
    transpose = 0.0
    if signature.layout == "nchw" and _by_tensor_cores(signature, device):
        transpose = streaming * (_TF32_TRANSPOSES if signature.compute == "tf32" else _TRANSPOSES)
    if _has_narrow_groups(signature):
        vector = signature.flops / (0.25 * device.peak("fp32"))
        duration, width = max(streaming, vector), _NARROW_UNCERTAINTY
        bound = "memory" if streaming >= vector else "compute"
    else:
        product = gemm.price([as_product(signature)], device)[0]
        arithmetic = product.duration_ns * 1e-9 * _IMPLICIT / (_WINOGRAD if _is_winograd(signature, device) else 1.0)
        duration = max(arithmetic, streaming) + transpose
        width, bound = max(_UNCERTAINTY, product.uncertainty), product.bound
    width = min(width, 0.9)
    return Price(max(1, round(duration * 1e9)), Origin.ANALYTIC, width, "analytic/convolution", bound, shared=width)


def _by_tensor_cores(signature: Convolution, device: Device) -> bool:
    """Whether the product runs on tensor cores, whose kernels want channels last."""
    tf32 = signature.compute == "tf32" and device.peak("tf32") > device.peak("fp32")
    return tf32 or dtype_bytes(signature.dtype) <= 2


def _is_winograd(signature: Convolution, device: Device) -> bool:
    """Whether cuDNN transforms tiles, as it does for dense filters of 3 x 3 taps in fp32 without strides."""
    plain = signature.groups == 1 and {*signature.stride, *signature.dilation} == {1}
    filters = signature.filter_size == (3, 3) and signature.dtype == "float32"
    return plain and filters and not _by_tensor_cores(signature, device)


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


def _has_narrow_groups(signature: Convolution) -> bool:
    return signature.groups > 1 and signature.in_channels // signature.groups <= 4


def moved_bytes(signature: Convolution) -> float:
    """Bytes of the input, the output and the filters, each once."""
    size = dtype_bytes(signature.dtype)
    points = signature.in_channels * math.prod(signature.input_size)
    points += signature.out_channels * math.prod(signature.output_size)
    taps = signature.out_channels * (signature.in_channels // signature.groups) * math.prod(signature.filter_size)
    return float(size * (signature.batch * points + taps))
