"""Products: what the formula says of shapes, layouts, types and groups."""

from __future__ import annotations

import msgspec
import pytest

from presim import hardware
from presim.cost.analytic import gemm
from presim.cost.analytic.gpu_figures import Device, device_of
from presim.cost.price import Price
from presim.trace.signatures import Gemm, GroupedGemm


@pytest.fixture
def h100() -> Device:
    return device_of(hardware.gpu("h100-sxm"))


def priced(device: Device, signature: Gemm | GroupedGemm) -> Price:
    return gemm.price([signature], device)[0]


def product(m: int, n: int, k: int, **more: object) -> Gemm:
    return Gemm(m=m, n=n, k=k, **{"batch": 1, "dtype": "bfloat16", "layout": "NT", **more})  # type: ignore[arg-type]


def share_of_peak(device: Device, signature: Gemm) -> float:
    return signature.flops / priced(device, signature).duration_ns / (device.peak("bf16") * 1e-9)


def test_a_large_product_sustains_what_power_allows_of_the_datasheet(h100: Device) -> None:
    """Tables of an H100 say 65 to 80 % for bf16; published training runs, in which all of it is busy, a tenth less."""
    large = product(16384, 16384, 16384)
    assert 0.58 < share_of_peak(h100, large) < 0.66
    assert 0.65 < share_of_peak(device_of(hardware.gpu("h100-sxm"), burst=True), large) < 0.80


def test_one_more_tile_than_sms_starts_another_wave() -> None:
    """108 tiles of 128 x 256 fill an A100 once; the 109th costs more than the 108th did."""
    a100 = device_of(hardware.gpu("a100-80gb-sxm"))
    times = [priced(a100, product(128, 256, 16384, batch=count)).duration_ns for count in (107, 108, 109)]
    assert times[2] - times[1] > 5 * (times[1] - times[0])


def test_one_row_is_bound_by_reading_the_weights(h100: Device) -> None:
    price = priced(h100, product(1, 8192, 8192))
    weights_ns = 2 * 8192 * 8192 / 3350  # GB/s are bytes/ns
    assert price.bound == "memory"
    assert weights_ns < price.duration_ns < 1.4 * weights_ns


def test_a_tiny_product_takes_the_launch_floor(h100: Device) -> None:
    price = priced(h100, product(16, 16, 16))
    assert price.bound == "latency"
    assert 1_500 < price.duration_ns < 4_000


def test_a_deep_narrow_product_is_split_along_k(h100: Device) -> None:
    """One tile on one SM would take 65536 / 64 steps of about 100 ns: split, it takes a fraction of that."""
    assert priced(h100, product(64, 64, 65536)).duration_ns < 30_000


def test_types_rank_by_their_peaks(h100: Device) -> None:
    kinds = [("float8_e4m3fn", "float32"), ("bfloat16", "float32"), ("float32", "tf32"), ("float32", "float32")]
    times = [
        priced(h100, product(4096, 4096, 4096, dtype=dtype, compute=compute)).duration_ns for dtype, compute in kinds
    ]
    assert times == sorted(times)
    assert times[3] > 5 * times[2]


def test_half_precision_is_one_price(h100: Device) -> None:
    half, brain = (priced(h100, product(4096, 4096, 4096, dtype=dtype)) for dtype in ("float16", "bfloat16"))
    assert half == brain


def test_bfloat16_on_volta_runs_as_float32() -> None:
    v100 = device_of(hardware.gpu("v100-32gb-sxm"))
    half, brain = (priced(v100, product(4096, 4096, 4096, dtype=dtype)) for dtype in ("float16", "bfloat16"))
    assert brain.duration_ns > 3 * half.duration_ns


def test_rows_off_the_16_byte_grid_are_slower_and_doubted(h100: Device) -> None:
    even, odd = priced(h100, product(4096, 4096, 4096)), priced(h100, product(4096, 4096, 4095))
    assert odd.duration_ns > 1.3 * even.duration_ns
    assert odd.uncertainty > even.uncertainty


def test_accumulating_into_float32_costs_its_bytes(h100: Device) -> None:
    plain = priced(h100, product(8192, 8192, 64))
    gradient = priced(h100, product(8192, 8192, 64, accumulate=True, out_dtype="float32"))
    more_ns = 8192 * 8192 * (8 - 2) / 3350
    assert gradient.duration_ns - plain.duration_ns > 0.8 * more_ns


def test_a_group_of_one_is_nearly_a_plain_product(h100: Device) -> None:
    plain = priced(h100, product(4096, 4096, 4096)).duration_ns
    grouped = priced(h100, GroupedGemm(groups=1, m=4096, n=4096, k=4096, dtype="bfloat16")).duration_ns
    assert plain < grouped < 1.2 * plain


def test_many_small_experts_are_slower_than_few_large_ones(h100: Device) -> None:
    few, many = (
        priced(h100, GroupedGemm(groups=groups, m=16384, n=2048, k=4096, dtype="bfloat16")).duration_ns
        for groups in (8, 256)
    )
    assert many > few


def test_a_gpu_with_less_power_sustains_less_of_its_peak(h100: Device) -> None:
    pcie = device_of(hardware.gpu("h100-pcie"))
    large = product(8192, 8192, 8192)
    assert share_of_peak(pcie, large) < share_of_peak(h100, large)
    assert priced(pcie, large).uncertainty > priced(h100, large).uncertainty


def test_gradients_in_fp8_are_added_up_precisely_which_costs_hopper_alone(h100: Device) -> None:
    """An operand of e5m2 is a gradient: frameworks ask for fast accumulation in the forward pass only."""
    forward = product(8192, 8192, 8192, dtype="float8_e4m3fn", out_dtype="bfloat16")
    gradient = product(8192, 8192, 8192, dtype="float8_e5m2", b_dtype="float8_e4m3fn", out_dtype="bfloat16")
    assert 1.1 < priced(h100, gradient).duration_ns / priced(h100, forward).duration_ns < 1.2
    b200 = device_of(hardware.gpu("b200"))
    assert priced(b200, gradient) == priced(b200, forward)


def test_how_sums_are_kept_goes_before_what_types_tell(h100: Device) -> None:
    told = [product(8192, 8192, 8192, dtype="float8_e4m3fn", sums=sums) for sums in ("", "fast", "precise")]
    unsaid, fast, precise = (priced(h100, signature).duration_ns for signature in told)
    assert unsaid == fast
    assert 1.1 < precise / fast < 1.2
    gradient = product(8192, 8192, 8192, dtype="float8_e5m2", sums="fast")
    assert priced(h100, gradient).duration_ns == fast


def test_prices_come_back_in_the_order_asked(h100: Device) -> None:
    asked = [product(64, 64, 64), product(64, 64, 64, dtype="float32"), product(4096, 4096, 4096)]
    assert gemm.price(asked, h100) == [priced(h100, signature) for signature in asked]


def test_tensor_cores_that_were_cut_keep_their_peak() -> None:
    """InferSim's H20: 280 TFLOP/s in FP8 of the datasheet's 296, where an H100 throttles to seven tenths."""
    work = Gemm(8192, 8192, 8192, 1, "float8_e4m3fn", out_dtype="bfloat16", scaling="block")
    rates = {}
    for name in ("h20", "h100-sxm"):
        chip = hardware.gpu(name)
        (made,) = gemm.price([work], device_of(chip, burst=True))
        rates[name] = work.flops / made.duration_ns * 1e9 / chip.peak("fp8")
    assert rates["h20"] == pytest.approx(280 / 296, rel=0.02)
    assert rates["h100-sxm"] < 0.8


@pytest.mark.parametrize(("gpu", "gain"), [("a100-80gb-sxm", 484 / 302.3), ("h100-sxm", 1.21)])
def test_a_2_4_operand_gains_what_was_published_on_large_products(gpu: str, gain: float) -> None:
    """CUTLASS on an A100 (16384 sides), cuSPARSELt on an H100: less than the datasheet's two."""
    device, sides = device_of(hardware.gpu(gpu)), (16384, 16384, 16384)
    dense, sparse = (priced(device, product(*sides, sparsity=kind)) for kind in ("", "2:4 a"))
    assert dense.duration_ns / sparse.duration_ns == pytest.approx(gain, rel=0.02)
    assert sparse.uncertainty > 2 * dense.uncertainty


@pytest.mark.parametrize(("operand", "saves"), [("a", False), ("b", True)])
def test_few_rows_save_the_bytes_of_sparse_weights_only(h100: Device, operand: str, saves: bool) -> None:
    """Of bf16 half the values and two bits each are read: nine sixteenths."""
    dense, sparse = (priced(h100, product(16, 16384, 8192, sparsity=kind)) for kind in ("", f"2:4 {operand}"))
    share = sparse.duration_ns / dense.duration_ns
    assert share == pytest.approx(9 / 16, abs=0.06) if saves else share > 0.95


def test_even_groups_cost_the_same_whether_their_sizes_are_told(h100: Device) -> None:
    even = GroupedGemm(64, 64 * 1024, 2048, 1024, "bfloat16")
    assert priced(h100, even) == priced(h100, msgspec.structs.replace(even, sizes=(1024,) * 64))


def test_each_group_has_a_tile_that_it_fills_in_part(h100: Device) -> None:
    """As many rows in one large group and 63 groups of eight rows need up to 63 tiles more."""
    even = GroupedGemm(64, 64 * 1024, 2048, 1024, "bfloat16")
    skewed = msgspec.structs.replace(even, sizes=(64 * 1024 - 63 * 8, *[8] * 63))
    assert 1.05 < priced(h100, skewed).duration_ns / priced(h100, even).duration_ns < 1.5


def test_weights_of_empty_groups_are_not_read(h100: Device) -> None:
    """A few tokens: the time is that of the weights."""
    even = GroupedGemm(64, 512, 4096, 2048, "bfloat16")
    few = msgspec.structs.replace(even, sizes=(64,) * 8)
    assert priced(h100, few).duration_ns < 0.3 * priced(h100, even).duration_ns


def test_divided_columns_cost_as_divided_rows(h100: Device) -> None:
    rows = GroupedGemm(4, 8192, 1024, 512, "bfloat16", sizes=(6000, 2000, 192))
    columns = GroupedGemm(4, 4 * 1024, 2048, 512, "bfloat16", sizes=(6000, 2000, 192), along="n")
    assert rows.flops == columns.flops
    assert priced(h100, columns).duration_ns == pytest.approx(priced(h100, rows).duration_ns, rel=0.01)


def test_the_deepest_group_of_weight_gradients_holds_up_the_rest(h100: Device) -> None:
    """With few tiles each, the SMs of short groups wait for the longest one."""
    even = GroupedGemm(8, 8 * 512, 512, 4096, "bfloat16")
    skewed = msgspec.structs.replace(even, sizes=(8 * 4096 - 7 * 512, *[512] * 7), along="k")
    assert priced(h100, skewed).duration_ns > 1.5 * priced(h100, even).duration_ns
