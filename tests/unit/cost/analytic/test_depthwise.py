"""Depthwise convolutions, by cuDNN and by PyTorch's own kernels."""

from __future__ import annotations

import msgspec
import pytest

from presim import hardware
from presim.cost.analytic import depthwise
from presim.cost.analytic.analytic_estimator import AnalyticEstimator
from presim.cost.analytic.gpu_figures import Device, device_of
from presim.cost.learned import features
from presim.trace.signatures import Convolution, Elementwise

POINTS = 16 * 1408 * 14 * 14
FILTERS = Convolution(
    direction="forward", batch=16, in_channels=1408, out_channels=1408, input_size=(14, 14), filter_size=(7, 7),
    output_size=(14, 14), stride=(1, 1), dilation=(1, 1), groups=1408, dtype="bfloat16", layout="nhwc",
)  # fmt: skip
OWN = Elementwise(4 * POINTS, 4 * POINTS, POINTS, "float32", operator="aten::_conv_depthwise2d")


def seconds(signature: Convolution | Elementwise, device: Device) -> float:
    return depthwise.price([signature], device)[0].duration_ns * 1e-9


def device(name: str) -> Device:
    return device_of(hardware.gpu(name))


def test_bandwidth_makes_no_difference() -> None:
    """An H200 has the SMs of an H100 and 1.4 times its bandwidth."""
    assert seconds(FILTERS, device("h200-sxm")) == pytest.approx(seconds(FILTERS, device("h100-sxm")), rel=0.02)


def test_taps_make_no_difference() -> None:
    three = msgspec.structs.replace(FILTERS, filter_size=(3, 3))
    assert seconds(three, device("h100-sxm")) == pytest.approx(seconds(FILTERS, device("h100-sxm")), rel=0.01)


def test_a_gradient_counts_the_points_that_it_has() -> None:
    """Half the sides: a quarter of the points forward, all of them in the gradient of the input."""
    strided = msgspec.structs.replace(FILTERS, output_size=(7, 7), stride=(2, 2), batch=256)
    inputs = msgspec.structs.replace(strided, direction="backward_data")
    h100 = device("h100-sxm")
    assert 5 < seconds(inputs, h100) / seconds(strided, h100) < 6


def test_filters_take_longer_than_their_bytes() -> None:
    signature = msgspec.structs.replace(FILTERS, batch=256)
    h100 = device("h100-sxm")
    assert seconds(signature, h100) > 5 * 2 * 2 * 16 * POINTS / h100.memory_Bps


def test_own_kernels_are_recognised_by_their_operators() -> None:
    backward = msgspec.structs.replace(OWN, operator="aten::convolution_backward")
    assert depthwise.covers(OWN)
    assert depthwise.covers(backward)
    assert not depthwise.covers(msgspec.structs.replace(OWN, operator="aten::add"))
    assert not depthwise.covers(msgspec.structs.replace(FILTERS, groups=1))
    assert features.kind_of(OWN) is None  # tables of elementwise work do not correct them


def test_the_analytic_estimator_asks_for_them() -> None:
    prices = AnalyticEstimator(hardware.gpu("a100-80gb-sxm")).price([FILTERS, OWN])
    assert [price.estimator for price in prices if price] == ["analytic/depthwise"] * 2
    assert all(price and price.shared == price.uncertainty for price in prices)
