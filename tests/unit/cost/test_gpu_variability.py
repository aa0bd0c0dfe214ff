"""The slowest of many GPUs determines the speed of a job."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.cost.gpu_variability import SPREAD, on_slowest_gpu, slowdown
from presim.cost.price import Origin, Price
from presim.trace.signatures import Elementwise, Gemm

PRODUCT = Gemm(4096, 4096, 4096, 1, "bfloat16")


@given(st.integers(1, 100_000), st.integers(1, 100_000))
def test_more_ranks_are_never_faster(one: int, other: int) -> None:
    few, many = sorted((one, other))
    assert 1 <= slowdown(few) <= slowdown(many) < 1 + 5 * SPREAD


def test_up_to_a_node_prices_are_as_calibrated() -> None:
    assert slowdown(1) == slowdown(8) == 1


def test_arithmetic_slows_and_memory_does_not() -> None:
    price = Price(1_000_000, Origin.LEARNED, 0.1, "learned")
    copy = Elementwise(1 << 20, 1 << 20, 1 << 20, "float32")
    assert on_slowest_gpu(PRODUCT, price, slowdown(512)).duration_ns == pytest.approx(1e6 * slowdown(512), abs=1)
    assert on_slowest_gpu(copy, price, slowdown(512)) == price
