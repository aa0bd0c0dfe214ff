"""Kernels that access operands element by element take at least the time of their instructions."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from presim import hardware
from presim.cost.analytic.element_access import at_least_instructions, instructions_ns
from presim.cost.analytic.gpu_figures import device_of
from presim.cost.chain import price_trace
from presim.cost.price import Origin, Price
from presim.trace.builder import TraceBuilder
from presim.trace.signatures import Elementwise, Reduction

H100, H200, B200, A100 = (device_of(hardware.gpu(gpu)) for gpu in ("h100-sxm", "h200", "b200", "a100-80gb-sxm"))
ELEMENTS = 16 * 16 * 559 * 64
PLAIN = Elementwise(4 * ELEMENTS, 2 * ELEMENTS, ELEMENTS, "bfloat16", operator="aten::mul")
STRIDED = msgspec.structs.replace(PLAIN, strided_operands=3)
CAST = msgspec.structs.replace(PLAIN, cast_operands=2)
BY_BYTES = Price(10_000, Origin.ANALYTIC, 0.1, "analytic/elementwise", "memory")


def test_a_rotation_of_qwen_s_heads_takes_what_a_profile_of_another_h100_has() -> None:
    """`aten::mul` of 16 x 16 x 559 x 64 with a broadcast factor: 31.6 us in TraceLens' trace of Qwen1.5 0.5B."""
    assert instructions_ns(STRIDED, H100) == pytest.approx(31_600, rel=0.15)


def test_a_copy_of_slices_takes_what_a_profile_of_a_b200_has() -> None:
    """`aten::copy_` of 888 x 2,880 in TraceLens' eager trace: 7.0 us."""
    elements = 888 * 2880
    copy = Elementwise(2 * elements, 2 * elements, elements, "bfloat16", operator="aten::copy_", strided_operands=2)
    assert instructions_ns(copy, B200) == pytest.approx(7_040, rel=0.15)


def test_it_takes_as_long_on_a_card_with_more_bandwidth() -> None:
    assert instructions_ns(STRIDED, H200) == pytest.approx(instructions_ns(STRIDED, H100), rel=0.01)


def test_a_price_by_bytes_is_raised_and_then_bound_by_arithmetic() -> None:
    price = at_least_instructions(STRIDED, BY_BYTES, B200)
    assert price.duration_ns == pytest.approx(instructions_ns(STRIDED, B200), abs=1)
    assert price.bound == "compute"
    assert price.uncertainty > BY_BYTES.uncertainty
    assert instructions_ns(CAST, B200) < price.duration_ns


def test_a_longer_price_stays() -> None:
    longer = msgspec.structs.replace(BY_BYTES, duration_ns=10**6)
    assert at_least_instructions(STRIDED, longer, B200) is longer


@pytest.mark.parametrize("origin", [Origin.MEASURED, Origin.INTERPOLATED])
def test_a_measured_price_stays(origin: Origin) -> None:
    measured = msgspec.structs.replace(BY_BYTES, origin=origin)
    assert at_least_instructions(STRIDED, measured, B200) is measured


@pytest.mark.parametrize("device", [H100, A100])
def test_other_generations_keep_their_prices(device: object) -> None:
    assert at_least_instructions(STRIDED, BY_BYTES, device) is BY_BYTES  # type: ignore[arg-type]


def test_vectorised_kernels_other_work_and_unknown_clocks_have_no_such_time() -> None:
    total = Reduction(4 * ELEMENTS, 4, ELEMENTS, "float32")
    assert at_least_instructions(PLAIN, BY_BYTES, B200) is BY_BYTES
    assert at_least_instructions(total, BY_BYTES, B200) is BY_BYTES
    assert instructions_ns(STRIDED, dataclasses.replace(B200, clock_hz=0.0)) == 0


def test_the_chain_applies_it() -> None:
    build = TraceBuilder()
    build.work(PLAIN)
    build.work(STRIDED)
    by_bytes, by_instructions = price_trace(build.trace(), hardware.choose_cluster(gpu="b200")).prices
    assert by_instructions.duration_ns > 1.5 * by_bytes.duration_ns
