"""Accelerators that are no GPU are priced by their data sheet, with an interval that follows from what is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.cost.analytic.analytic_estimator import AnalyticEstimator
from presim.cost.bounds import datasheet_ns
from presim.cost.collectives.hierarchical import Hierarchical
from presim.errors import InputError
from presim.hardware import Gpu, catalogue, choose_cluster
from presim.hardware.device_config import device_config
from presim.trace.collective import Collective
from presim.trace.schema import Group
from presim.trace.signatures import Attention, Copy, Elementwise, Gemm, Signature

LEAST = """name = "Plain device"
vendor = "acme"
nominal_memory_GB = 64
memory_bandwidth_GBps = 1000
bf16_dense_TFLOPs = 200
"""
PRODUCT = Gemm(m=4096, n=4096, k=4096, batch=1, dtype="bfloat16")
STREAM = Elementwise(bytes_read=1 << 29, bytes_written=1 << 29, elements=1 << 28, dtype="bfloat16")
ATTENTION = Attention("forward", 4, 32, 8, 4096, 4096, 128, 128, True, "bfloat16", "flash")
WORK: list[Signature] = [PRODUCT, STREAM, ATTENTION, Copy("h2d", 1 << 26), Gemm(8, 64, 64, 1, "float32")]


@pytest.fixture
def device(tmp_path: Path) -> Gpu:
    path = tmp_path / "plain.toml"
    path.write_text(LEAST)
    return catalogue.gpu(str(path))


def seconds(gpu: Gpu, work: Signature) -> float:
    (price,) = AnalyticEstimator(gpu).price([work])
    assert price is not None
    return price.duration_ns * 1e-9


def width(gpu: Gpu, work: Signature) -> float:
    (price,) = AnalyticEstimator(gpu).price([work])
    assert price is not None
    return price.uncertainty


def test_a_file_without_keys_of_gpus_is_enough(device: Gpu) -> None:
    assert device.memory_bytes == 64 * 10**9
    assert device.default_node == "accelerators-8"
    assert seconds(device, PRODUCT) == pytest.approx(2 * 4096**3 / (200e12 * 0.75), rel=0.02)
    assert seconds(device, STREAM) == pytest.approx((1 << 30) / (1e12 * 0.8), rel=0.02)


@pytest.mark.parametrize("name", [gpu.id for gpu in catalogue.gpus() if not gpu.is_gpu])
def test_every_accelerator_prices_every_class_no_faster_than_its_data_sheet(name: str) -> None:
    gpu = catalogue.gpu(name)
    for price, work in zip(AnalyticEstimator(gpu).price(WORK), WORK, strict=True):
        assert price is not None
        assert price.duration_ns >= datasheet_ns(work, gpu)
        assert 0 < price.uncertainty <= 0.9


def test_the_interval_is_narrower_the_more_is_known(device: Gpu) -> None:
    stated = msgspec.structs.replace(device, matrix_share=0.7, memory_share=0.8, launch_ns=5000)
    fitted = msgspec.structs.replace(stated, share_spread=0.03)
    for work in (PRODUCT, STREAM):
        assert width(fitted, work) < width(stated, work) < width(device, work)
    assert width(device, Gemm(8, 64, 64, 1, "bfloat16")) > 0.7  # a start that is not known


def test_operands_are_padded_to_the_matrix_unit(device: Gpu) -> None:
    padded = msgspec.structs.replace(device, matrix_side=128)
    narrow = msgspec.structs.replace(PRODUCT, n=516, m=1 << 14)
    assert seconds(padded, narrow) > 1.1 * seconds(device, narrow)
    assert seconds(padded, PRODUCT) == seconds(device, PRODUCT)


@given(st.integers(1, 8192), st.integers(1, 8192), st.integers(1, 8192))
def test_more_arithmetic_takes_no_less_time(m: int, n: int, k: int) -> None:
    gpu = catalogue.gpu("trainium2")
    product = Gemm(m=m, n=n, k=k, batch=1, dtype="bfloat16")
    assert seconds(gpu, msgspec.structs.replace(product, k=2 * k)) >= seconds(gpu, product)


def test_a_script_is_refused_by_the_name_of_the_device() -> None:
    with pytest.raises(InputError, match=r"^tpu-v5p \(Google TPU v5p\) is no GPU, so PyTorch's CUDA kernels cannot be"):
        device_config(catalogue.gpu("tpu-v5p"), 4)


def all_to_all_ns(**cluster: Any) -> int:
    chosen = choose_cluster(**cluster)
    ranks = tuple(range(chosen.world_size))
    work = Collective(kind="all_to_all", bytes=1 << 30, dtype="bfloat16", group=0)
    return Hierarchical().alone(work, Group("all", ranks, len(ranks)), chosen).duration_ns


def test_the_bisection_of_a_torus_limits_exchanges() -> None:
    """16 by 16 chips have half of a rank's links for what crosses the middle of 16: 8 / 16 links of 4."""
    large, small = all_to_all_ns(gpu="tpu-v6e", nodes=32), all_to_all_ns(gpu="tpu-v6e", nodes=1)
    assert large > 3 * small
