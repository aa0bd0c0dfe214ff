"""The guess for what nobody covers."""

from __future__ import annotations

from presim import hardware
from presim.cost.analytic.gpu_figures import device_of
from presim.cost.analytic.kernel import UNCERTAINTY, guess
from presim.trace.signatures import Kernel

H100 = device_of(hardware.gpu("h100-sxm"))


def test_bytes_count_where_they_are_known() -> None:
    price = guess(Kernel("k", (1, 1, 1), (32, 1, 1), bytes=1 << 30), H100)
    assert price.duration_ns > (1 << 30) / 3350
    assert (price.estimator, price.uncertainty, price.bound) == ("guess", UNCERTAINTY, "memory")


def test_arithmetic_that_is_known_counts_too() -> None:
    """An eigensolver reads its matrix once, and computes on it ever so often."""
    solver = Kernel("cusolverDnXsyevd", (1, 1, 1), (1, 1, 1), bytes=1 << 24, flops=9 * 2048**3)
    assert guess(solver, H100).duration_ns > 9 * 2048**3 / H100.peak("fp32") * 1e9 > 1e6


def test_else_the_launch_geometry_counts() -> None:
    small, large = (guess(Kernel("k", (blocks, 1, 1), (256, 1, 1)), H100) for blocks in (1, 1 << 20))
    assert small.duration_ns < 3_000
    assert large.duration_ns > 100 * small.duration_ns
