"""Kernels that take as long as their bytes."""

from __future__ import annotations

import pytest

from presim import hardware
from presim.cost.analytic import memory_bound_kernels
from presim.cost.analytic.gpu_figures import Device, device_of
from presim.cost.analytic.operator_constants import MemoryConstants
from presim.cost.price import Price
from presim.trace.signatures import Elementwise, Fused, MemoryBound, Normalization, Random, Softmax, Sort

MIB = 1 << 20


@pytest.fixture
def h100() -> Device:
    return device_of(hardware.gpu("h100-sxm"))


def priced(device: Device, signature: MemoryBound | Fused) -> Price:
    return memory_bound_kernels.price([signature], device)[0]


def elementwise(size: int, dtype: str = "float32", operator: str = "aten::add") -> Elementwise:
    return Elementwise(size // 2, size // 2, size // 8, dtype, operator=operator)


def test_a_large_kernel_reaches_nine_tenths_of_bandwidth(h100: Device) -> None:
    price = priced(h100, elementwise(4096 * MIB))
    assert price.bound == "memory"
    assert 0.80 < 4096 * MIB / price.duration_ns / 3350 < 0.92


def test_a_tiny_kernel_takes_the_launch_floor(h100: Device) -> None:
    price = priced(h100, elementwise(256))
    assert price.bound == "latency"
    assert 1_000 <= price.duration_ns < 2_000


def test_what_fits_in_the_cache_moves_faster(h100: Device) -> None:
    rates = [size * MIB / (priced(h100, elementwise(size * MIB)).duration_ns - 1_500) for size in (8, 1024)]
    assert rates[0] > 1.2 * rates[1]


def test_no_more_than_the_cache_holds_can_come_from_it(h100: Device) -> None:
    generous = MemoryConstants(efficiency=0.9, launch_us=1, l2_gain=100, uncertainty=0.1, source="")
    moved = 200e6
    assert memory_bound_kernels.seconds(moved, h100, generous) >= 1e-6 + (moved - h100.l2_bytes) / h100.memory_Bps


def test_operators_known_to_be_slow_are_priced_so(h100: Device) -> None:
    add, scan = (priced(h100, elementwise(512 * MIB, operator=f"aten::{name}")) for name in ("add", "cumsum"))
    assert scan.duration_ns > 2 * add.duration_ns
    assert scan.uncertainty > add.uncertainty


def test_casts_to_mxfp8_are_slower_than_their_bytes_on_blackwell_only(h100: Device) -> None:
    """8192 x 8192 in both directions took 52 us on a B200."""
    b200 = device_of(hardware.gpu("b200"), burst=True)
    cast, plain = (elementwise(256 * MIB, operator=name) for name in ("te::quantize", "te::other"))
    assert priced(b200, cast).duration_ns == pytest.approx(52_000, rel=0.05)
    assert priced(b200, cast).duration_ns > 1.15 * priced(b200, plain).duration_ns
    assert priced(h100, cast) == priced(h100, plain)


def test_transcendentals_show_in_narrow_types_only(h100: Device) -> None:
    wide, narrow = (priced(h100, elementwise(512 * MIB, dtype, "aten::gelu")) for dtype in ("float32", "bfloat16"))
    assert narrow.duration_ns > wide.duration_ns


def test_in_place_operators_cost_what_the_others_do(h100: Device) -> None:
    size = 64 * MIB
    assert priced(h100, elementwise(size, operator="aten::cat_")) == priced(
        h100, elementwise(size, operator="aten::cat")
    )


def test_a_fused_kernel_with_much_arithmetic_is_bound_by_it(h100: Device) -> None:
    fused = Fused("triton", MIB, MIB, MIB // 4, "float32", flops=10**12)
    assert priced(h100, fused).bound == "compute"


@pytest.mark.parametrize("kind", ["plain", "special", "wide"])
def test_counted_instructions_bind_where_they_take_longer_than_the_bytes(h100: Device, kind: str) -> None:
    quiet = Fused("triton", MIB, MIB, MIB // 4, "float32", **{kind: 10**5})
    busy = Fused("triton", MIB, MIB, MIB // 4, "float32", **{kind: 10**11})
    assert priced(h100, quiet) == priced(h100, Fused("triton", MIB, MIB, MIB // 4, "float32"))
    assert priced(h100, busy).bound == "compute"
    assert priced(h100, busy).uncertainty > priced(h100, quiet).uncertainty


def test_functions_take_eight_times_as_long_as_additions_and_64_bits_what_their_peak_says(h100: Device) -> None:
    def seconds(**kinds: int) -> float:
        return priced(h100, Fused("triton", 8, 8, 8, "float32", **kinds)).duration_ns / 1e9

    count = 10**12
    assert seconds(special=count) == pytest.approx(8 * seconds(plain=count), rel=1e-3)
    assert seconds(wide=count) >= count / (h100.peak("fp64") / 2)


def test_transposed_copies_move_less_a_second_the_narrower_they_are(h100: Device) -> None:
    plain, wide, narrow = (
        priced(h100, Fused("triton", 128 * MIB, 128 * MIB, 64 * MIB, "bfloat16", across_bytes=size)).duration_ns
        for size in (0, 2, 1)
    )
    assert 1.1 * plain < wide < 1.3 * plain
    assert 1.5 * plain < narrow < 1.6 * plain


def test_normalization_is_slower_than_a_sum_of_the_same_bytes(h100: Device) -> None:
    norm = Normalization(128 * MIB, 128 * MIB, 64 * MIB, "bfloat16")
    assert priced(h100, norm).duration_ns > priced(h100, elementwise(256 * MIB)).duration_ns


def test_sorting_passes_over_its_data_several_times(h100: Device) -> None:
    assert priced(h100, Sort(MIB, MIB, MIB, "float32")).duration_ns > 5 * 2 * MIB / 3350


def test_generations_without_a_measurement_borrow_and_doubt() -> None:
    """Nobody measured a norm on MI300X: Hopper's constants, twice as wide."""
    norm = Normalization(64 * MIB, 64 * MIB, 32 * MIB, "bfloat16")
    measured, borrowed = (priced(device_of(hardware.gpu(name)), norm) for name in ("h100-sxm", "mi300x"))
    assert borrowed.uncertainty > 1.5 * measured.uncertainty


def test_a_dropout_s_gradient_draws_no_numbers(h100: Device) -> None:
    made = Random(256 * MIB, 128 * MIB, 64 * MIB, "float16", operator="aten::native_dropout")
    mask = Random(256 * MIB, 128 * MIB, 64 * MIB, "float16", operator="aten::native_dropout_backward")
    plain = Elementwise(256 * MIB, 128 * MIB, 64 * MIB, "float16", operator="aten::mul")
    assert priced(h100, mask).duration_ns == priced(h100, plain).duration_ns < priced(h100, made).duration_ns


def test_fewer_rows_than_sms_leave_bandwidth_unused(h100: Device) -> None:
    """An H100 took 64 us for the softmax of 64 rows of 128,256 float32; 132 rows take no longer than 64."""
    few, more = (
        priced(h100, Softmax(4 * rows * 128256, 4 * rows * 128256, rows * 128256, "float32", row=128256))
        for rows in (64, 132)
    )
    assert few.duration_ns / 1e3 == pytest.approx(64.2, rel=few.uncertainty)
    assert few.duration_ns == pytest.approx(more.duration_ns, rel=0.15)
