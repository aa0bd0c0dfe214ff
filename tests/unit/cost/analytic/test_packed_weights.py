"""Products whose weights are unpacked while they are multiplied."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.cost.analytic import gemm, packed_weights
from presim.cost.analytic.analytic_estimator import AnalyticEstimator
from presim.cost.analytic.gpu_figures import Device, device_of
from presim.cost.price import Price
from presim.hardware import catalogue
from presim.trace.signatures import MACHETE, MARLIN, NF4, TINYGEMM, Gemm, GroupedGemm


@pytest.fixture(scope="module")
def h100() -> Device:
    """A busy one."""
    return device_of(catalogue.gpu("h100-sxm"))


def product(m: int, n: int, k: int, scaling: str = "") -> Gemm:
    """Of 16-bit rows."""
    return Gemm(m, n, k, 1, "bfloat16", b_dtype="uint4", layout="NT", scaling=scaling)


def priced(device: Device, signature: Gemm | GroupedGemm) -> Price:
    """One price."""
    return packed_weights.price([signature], device)[0]


@pytest.mark.parametrize(
    ("m", "n", "k", "microseconds"),
    [(1, 8192, 8192, 23.8), (16, 14336, 4096, 70.2), (64, 8192, 8192, 310.5), (512, 14336, 4096, 2100.7)],
)
def test_pytorch_s_own_4_bit_product_takes_what_was_measured(
    h100: Device, m: int, n: int, k: int, microseconds: float
) -> None:
    """It unpacks its weights again for every few rows, so time grows with the rows."""
    price = priced(h100, product(m, n, k, TINYGEMM))
    assert price.duration_ns / 1e3 == pytest.approx(microseconds, rel=price.uncertainty)
    assert price.uncertainty < 0.25
    assert price.bound == ("memory" if m == 1 else "compute")


@pytest.mark.parametrize(
    ("kernel", "m", "n", "k", "microseconds"),
    [
        (MACHETE, 1, 28672, 4096, 33.1),
        (MACHETE, 16, 8192, 3584, 15.5),
        (MARLIN, 1, 28672, 4096, 29.9),
        (MARLIN, 1, 4096, 14336, 22.2),
    ],
)
def test_engines_kernels_take_what_was_measured(
    h100: Device, kernel: str, m: int, n: int, k: int, microseconds: float
) -> None:
    """Four of the 416 products of validation/results/h100 and h200."""
    price = priced(h100, product(m, n, k, kernel))
    assert price.duration_ns / 1e3 == pytest.approx(microseconds, rel=price.uncertainty)


def test_with_many_rows_machete_is_a_16_bit_product_and_marlin_takes_twice_as_long(h100: Device) -> None:
    """As measured on an H100: 616, 620 and 1,352 us with 2,048 rows of Llama's feed-forward layer."""
    half = gemm.price([Gemm(2048, 28672, 4096, 1, "bfloat16", layout="NT")], h100)[0].duration_ns
    machete, marlin = (priced(h100, product(2048, 28672, 4096, kernel)).duration_ns for kernel in (MACHETE, MARLIN))
    assert machete == pytest.approx(half, rel=0.1)
    assert 1.8 < marlin / half < 2.4


def test_a_product_that_names_no_kernel_runs_the_gpu_s(h100: Device) -> None:
    """Machete on Hopper, Marlin elsewhere, whose price is less certain there."""
    a100 = device_of(catalogue.gpu("a100-80gb-sxm"))
    assert priced(h100, product(8, 4096, 4096)) == priced(h100, product(8, 4096, 4096, MACHETE))
    assert priced(a100, product(8, 4096, 4096)) == priced(a100, product(8, 4096, 4096, MARLIN))
    assert priced(a100, product(8, 4096, 4096)).uncertainty > priced(h100, product(8, 4096, 4096, MARLIN)).uncertainty


def test_bitsandbytes_kernel_has_the_general_formula() -> None:
    """Nothing here knows it."""
    estimator = AnalyticEstimator(catalogue.gpu("h100-sxm"))
    names = [
        price.estimator for price in estimator.price([product(1, 4096, 4096, NF4), product(1, 4096, 4096)]) if price
    ]
    assert names == ["analytic/gemm", packed_weights.NAME]


@pytest.mark.parametrize(
    ("tokens", "chosen", "experts", "n", "k", "b_dtype", "microseconds"),
    [(16, 8, 128, 1536, 2048, "uint4", 55.9), (64, 2, 8, 14336, 4096, "uint4", 124.7)],
)
def test_routed_experts_take_what_was_measured(
    h100: Device, tokens: int, chosen: int, experts: int, n: int, k: int, b_dtype: str, microseconds: float
) -> None:
    """Marlin's grouped kernel, to which nothing was fitted."""
    used = round(experts * (1 - (1 - chosen / experts) ** tokens))
    price = priced(h100, GroupedGemm(used, tokens * chosen, n, k, "bfloat16", b_dtype=b_dtype))
    assert price.duration_ns / 1e3 == pytest.approx(microseconds, rel=price.uncertainty)


@given(st.integers(1, 4096), st.sampled_from((1024, 4096, 28672)), st.sampled_from((1024, 4096, 14336)))
def test_more_rows_never_take_less(m: int, n: int, k: int) -> None:
    """Of either kernel."""
    device = device_of(catalogue.gpu("h100-sxm"))
    for kernel in (MACHETE, MARLIN):
        one = product(m, n, k, kernel)
        more = msgspec.structs.replace(one, m=m + 1)
        assert priced(device, more).duration_ns >= priced(device, one).duration_ns
