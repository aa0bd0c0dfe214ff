"""Layer norms and gradients of their weights take at least the time in which thread blocks pass all rows."""

from __future__ import annotations

import msgspec
import pytest

from presim import hardware
from presim.cost.analytic.gpu_figures import device_of
from presim.cost.analytic.norm_rows import at_least_rows, rows_ns
from presim.cost.chain import price_trace
from presim.cost.price import Origin, Price
from presim.trace.builder import TraceBuilder
from presim.trace.signatures import Normalization, Reduction

H100, H200, A100 = (device_of(hardware.gpu(gpu)) for gpu in ("h100-sxm", "h200", "a100-80gb-sxm"))
SHORT = Price(1_000, Origin.LEARNED, 0.3, "learned/normalization", "memory")


def of_weights(rows: int, row: int, element_bytes: int = 2) -> Normalization:
    """The second kernel of a layer norm's backward pass."""
    dtype = {2: "bfloat16", 4: "float32"}[element_bytes]
    read = 2 * rows * row * element_bytes + 8 * rows
    operator = "aten::native_layer_norm_backward"
    return Normalization(read, 2 * row * element_bytes, rows * row, dtype, operator=operator, row=row)


def of_input(weights: Normalization) -> Normalization:
    """The first kernel of the same pass, to which captures count all results."""
    written = weights.bytes_written + weights.elements * (2 if weights.dtype == "bfloat16" else 4)
    return msgspec.structs.replace(weights, bytes_written=written)


def forward(rows: int, row: int, dtype: str = "bfloat16") -> Normalization:
    """A layer norm."""
    size = rows * row * {"bfloat16": 2, "float32": 4}[dtype]
    return Normalization(size, size + 8 * rows, rows * row, dtype, operator="aten::native_layer_norm", row=row)


@pytest.mark.parametrize("gpu", ["h100-sxm", "h200"])
@pytest.mark.parametrize(
    ("norm", "measured_us"),
    [
        (forward(8192, 1024), {"h100-sxm": 21.4, "h200": 21.4}),  # BERT large
        (forward(4096, 2048), {"h100-sxm": 17.3, "h200": 17.0}),  # OPT 1.3B
        (forward(8224, 1280), {"h100-sxm": 25.0, "h200": 24.7}),  # ViT-H/14
        (forward(16384, 1024), {"h100-sxm": 41.8, "h200": 41.0}),  # the cards' sweeps
        (forward(65536, 1024), {"h100-sxm": 156.3, "h200": 154.6}),
    ],
)
def test_layer_norms_take_what_was_measured(norm: Normalization, measured_us: dict[str, float], gpu: str) -> None:
    build = TraceBuilder()
    build.work(norm)
    (price,) = price_trace(build.trace(), hardware.choose_cluster(gpu=gpu)).prices
    assert price.duration_ns / 1e3 == pytest.approx(measured_us[gpu], rel=0.07)


@pytest.mark.parametrize("gpu", ["h100-sxm", "h200"])
@pytest.mark.parametrize(
    ("weights", "measured_us"),
    [
        (of_weights(8192, 1024), {"h100-sxm": 63.0, "h200": 57.4}),  # BERT large
        (of_weights(4096, 2048), {"h100-sxm": 45.5, "h200": 39.4}),  # OPT 1.3B
        (of_weights(8224, 1280), {"h100-sxm": 67.1, "h200": 62.2}),  # ViT-H/14
        (of_weights(4096, 1280, 4), {"h100-sxm": 56.6, "h200": 45.5}),  # GPT-2 large
    ],
)
def test_backward_passes_take_what_they_took_in_measured_steps(
    weights: Normalization, measured_us: dict[str, float], gpu: str
) -> None:
    build = TraceBuilder()
    build.work(of_input(weights))
    build.work(weights)
    prices = price_trace(build.trace(), hardware.choose_cluster(gpu=gpu)).prices
    assert sum(price.duration_ns for price in prices) / 1e3 == pytest.approx(measured_us[gpu], rel=0.1)


def test_it_takes_as_long_on_a_card_with_more_bandwidth() -> None:
    assert rows_ns(of_weights(8192, 1024), H200) == rows_ns(of_weights(8192, 1024), H100)


def test_other_kernels_have_no_such_passes() -> None:
    weights = of_weights(8192, 1024)
    assert rows_ns(of_input(weights), H100) == 0
    assert rows_ns(msgspec.structs.replace(weights, operator="te::rmsnorm_bwd"), H100) == 0
    assert rows_ns(of_weights(100_000, 1024), H100) == 0  # divided among blocks
    assert rows_ns(msgspec.structs.replace(weights, row=0), H100) == 0
    assert rows_ns(forward(8192, 1024, "float32"), H100) == 0


def test_measured_longer_other_and_unmeasured_prices_stay() -> None:
    weights = of_weights(8192, 1024)
    measured = msgspec.structs.replace(SHORT, origin=Origin.MEASURED)
    longer = msgspec.structs.replace(SHORT, duration_ns=10**8)
    assert at_least_rows(weights, measured, H100) is measured
    assert at_least_rows(weights, longer, H100) is longer
    assert at_least_rows(weights, SHORT, A100) is SHORT
    assert at_least_rows(Reduction(1 << 20, 4, 1 << 18, "float32"), SHORT, H100) is SHORT
    assert at_least_rows(weights, SHORT, H100).duration_ns > 30_000
