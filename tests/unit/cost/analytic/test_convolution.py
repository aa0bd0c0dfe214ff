"""Convolutions as implicit products."""

from __future__ import annotations

import msgspec
import pytest

from presim import hardware
from presim.cost.analytic import convolution
from presim.cost.analytic.gpu_figures import Device, device_of
from presim.cost.price import Price
from presim.trace.signatures import Convolution

THREE = Convolution(
    direction="forward", batch=64, in_channels=256, out_channels=256, input_size=(28, 28), filter_size=(3, 3),
    output_size=(28, 28), stride=(1, 1), dilation=(1, 1), groups=1, dtype="bfloat16", layout="nhwc",
)  # fmt: skip


@pytest.fixture
def h100() -> Device:
    return device_of(hardware.gpu("h100-sxm"))


def priced(device: Device, **changes: object) -> Price:
    return convolution.price([msgspec.structs.replace(THREE, **changes)], device)[0]


@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_weight"])
def test_the_implicit_product_has_the_flops_of_the_convolution(direction: str) -> None:
    work = msgspec.structs.replace(THREE, direction=direction)
    assert convolution.as_product(work).flops == work.flops


def test_a_dense_convolution_runs_on_tensor_cores(h100: Device) -> None:
    assert 0.3 < THREE.flops / priced(h100).duration_ns / 989_000 < 0.8


def test_channels_first_pays_for_the_transpose(h100: Device) -> None:
    assert priced(h100, layout="nchw").duration_ns > priced(h100).duration_ns


def test_tf32_needs_channels_last_too(h100: Device) -> None:
    work = {"dtype": "float32", "compute": "tf32"}
    assert priced(h100, layout="nchw", **work).duration_ns > 1.1 * priced(h100, **work).duration_ns
    full = {"dtype": "float32"}
    assert priced(h100, layout="nchw", **full) == priced(h100, **full)


def test_a_gpu_without_tf32_transposes_nothing() -> None:
    v100 = device_of(hardware.gpu("v100-32gb-sxm"))
    work = {"dtype": "float32", "compute": "tf32"}
    assert priced(v100, layout="nchw", **work) == priced(v100, **work)


def test_groups_of_few_channels_are_no_product(h100: Device) -> None:
    price = priced(h100, groups=128)
    assert price.duration_ns < priced(h100).duration_ns
    assert price.uncertainty == 0.6


def test_the_error_of_all_convolutions_is_common(h100: Device) -> None:
    price = priced(h100)
    assert price.shared == price.uncertainty >= 0.3


def test_winograd_saves_arithmetic_of_dense_filters_in_fp32() -> None:
    v100 = device_of(hardware.gpu("v100-32gb-sxm"))
    three = priced(v100, dtype="float32").duration_ns
    five = priced(v100, dtype="float32", filter_size=(5, 5)).duration_ns
    strided = priced(v100, dtype="float32", stride=(2, 2), input_size=(56, 56)).duration_ns
    assert three == pytest.approx(strided / 2, rel=0.1)
    assert three < five / (25 / 9) / 1.7
