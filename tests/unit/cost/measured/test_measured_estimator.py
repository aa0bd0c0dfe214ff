"""Measured prices: exact where the table has the work, between rows inside, silent outside."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from presim import hardware
from presim.cost.analytic.analytic_estimator import AnalyticEstimator
from presim.cost.measured.measured_estimator import MeasuredEstimator
from presim.cost.measured.measured_rows import AS_AT_WORK, PROFILE, Measurement
from presim.cost.price import Origin
from presim.trace.signatures import Attention, Collective, Elementwise, Gemm, Normalization, Signature

GPU = hardware.gpu("h100-sxm")
GEMM = Gemm(4096, 4096, 4096, 1, "bfloat16")


def measured(signature: Signature, factor: float = 1.2, **more: object) -> Measurement:
    """A row that says ``factor`` times what the formula says."""
    (price,) = AnalyticEstimator(GPU).price([signature])
    assert price is not None
    fields = {"gpu": GPU.id, "signature": signature, "duration_ns": factor * price.duration_ns, "source": PROFILE}
    return Measurement(**{**fields, **more})


def sized(**sizes: int) -> Gemm:
    return msgspec.structs.replace(GEMM, **sizes)


def test_what_was_measured_costs_what_was_measured() -> None:
    row = measured(GEMM, spread=0.12)
    (price,) = MeasuredEstimator(GPU, [row]).price([GEMM])
    assert price is not None
    assert (price.origin, price.uncertainty) == (Origin.MEASURED, 0.12)
    assert price.duration_ns == pytest.approx(row.duration_ns, abs=1)


def test_arithmetic_measured_at_full_clocks_is_doubted_by_half_of_what_a_power_limit_costs() -> None:
    norm = Normalization(1 << 24, 1 << 24, 1 << 23, "bfloat16", row=4096)
    prices = MeasuredEstimator(GPU, [measured(GEMM, spread=0.03), measured(norm, spread=0.03)]).price([GEMM, norm])
    assert [price.uncertainty for price in prices if price] == [0.095, 0.03]


def test_sources_that_disagree_count_as_their_median_and_widen_the_doubt() -> None:
    rows = [measured(GEMM, factor, source=source) for factor, source in zip((1.1, 1.2, 1.5), AS_AT_WORK, strict=True)]
    (price,) = MeasuredEstimator(GPU, rows).price([GEMM])
    assert price is not None
    assert price.duration_ns == pytest.approx(rows[1].duration_ns, abs=1)
    assert price.uncertainty == pytest.approx(0.2 / 1.2)


def test_what_was_measured_on_a_resting_gpu_takes_one_at_work_longer() -> None:
    """As much longer as the formula says, which is doubted by half."""
    (resting,), (working,) = (AnalyticEstimator(GPU, burst=burst).price([GEMM]) for burst in (True, False))
    assert resting is not None
    assert working is not None
    row = Measurement(gpu=GPU.id, signature=GEMM, duration_ns=1.1 * resting.duration_ns, source="aiconfigurator/vllm")
    (price,) = MeasuredEstimator(GPU, [row]).price([GEMM])
    assert price is not None
    assert price.duration_ns == pytest.approx(1.1 * working.duration_ns, abs=2)
    assert working.duration_ns > 1.1 * resting.duration_ns
    assert price.uncertainty > math.log(working.duration_ns / resting.duration_ns) / 2


@settings(max_examples=40, deadline=None)
@given(st.integers(1025, 4095), st.floats(1.0, 1.5), st.floats(1.0, 1.5))
def test_between_two_rows_the_ratio_lies_between_theirs(m: int, low: float, high: float) -> None:
    table = MeasuredEstimator(GPU, [measured(sized(m=1024), low), measured(sized(m=4096), high)])
    asked = sized(m=m)
    (price,), (formula,) = table.price([asked]), AnalyticEstimator(GPU).price([asked])
    assert price is not None
    assert formula is not None
    assert price.origin is Origin.INTERPOLATED
    assert min(low, high) - 1e-3 <= price.duration_ns / formula.duration_ns <= max(low, high) + 1e-3
    assert price.uncertainty >= abs(low - high) / 4


@pytest.mark.parametrize(
    "asked",
    [
        sized(m=512), sized(m=8192), sized(m=2048, n=8192), sized(m=2048, batch=2),
        msgspec.structs.replace(GEMM, m=2048, layout="NT"), msgspec.structs.replace(GEMM, m=2048, dtype="float16"),
        Elementwise(2048, 2048, 512, "float32"), Collective("all_reduce", 1, "float32", 0),
    ],
)  # fmt: skip
def test_outside_what_was_measured_nothing_is_said(asked: Signature) -> None:
    table = MeasuredEstimator(GPU, [measured(sized(m=1024)), measured(sized(m=4096))])
    assert table.price([asked]) == [None]


def test_rows_too_far_apart_say_nothing_of_what_lies_between() -> None:
    table = MeasuredEstimator(GPU, [measured(sized(m=128)), measured(sized(m=4096))])
    assert table.price([sized(m=1024)]) == [None]


def test_rows_of_another_gpu_are_not_used() -> None:
    assert MeasuredEstimator(GPU, [measured(GEMM, gpu="h200")]).price([GEMM]) == [None]


def test_attention_is_interpolated_along_its_length() -> None:
    def of(length: int) -> Attention:
        return Attention("forward", 2, 32, 8, length, length, 128, 128, True, "bfloat16", "cudnn")

    (price,) = MeasuredEstimator(GPU, [measured(of(2048)), measured(of(8192))]).price([of(4096)])
    assert price is not None
    assert price.origin is Origin.INTERPOLATED


def test_memory_bound_work_is_interpolated_along_its_elements() -> None:
    def of(elements: int) -> Elementwise:
        return Elementwise(4 * elements, 2 * elements, elements, "bfloat16", operator="aten::add")

    table = MeasuredEstimator(GPU, [measured(of(1 << 20)), measured(of(1 << 22))])
    (price,) = table.price([of(1 << 21)])
    assert price is not None
    assert price.origin is Origin.INTERPOLATED
    assert table.price([Elementwise(2 << 21, 2 << 21, 1 << 21, "bfloat16", operator="aten::add")]) == [None]


def test_rows_of_one_kernel_say_nothing_of_another_kernel() -> None:
    """A vectorised addition between two measured ones is interpolated; one of expanded tensors is not."""
    rows = [
        measured(Elementwise(4 * count, 2 * count, count, "bfloat16", operator="aten::add"))
        for count in (1 << 20, 1 << 22)
    ]
    between = Elementwise(4 << 21, 2 << 21, 1 << 21, "bfloat16", operator="aten::add")
    strided = msgspec.structs.replace(between, strided_operands=3)
    plain_price, strided_price = MeasuredEstimator(GPU, rows).price([between, strided])
    assert plain_price is not None
    assert plain_price.origin is Origin.INTERPOLATED
    assert strided_price is None


def test_a_cast_of_an_older_table_is_known_by_its_bytes() -> None:
    row = measured(Elementwise(2 << 20, 4 << 20, 1 << 20, "float32", operator="aten::copy_"))
    (price,) = MeasuredEstimator(GPU, [row]).price([msgspec.structs.replace(row.signature, cast_operands=2)])
    assert price is not None
    assert (price.origin, price.duration_ns) == (Origin.MEASURED, pytest.approx(row.duration_ns, abs=1))
