"""Softmax over long rows takes at least the time of its passes over them."""

from __future__ import annotations

import msgspec
import pytest

from presim import hardware
from presim.cost.analytic.gpu_figures import Device, device_of
from presim.cost.analytic.softmax_rows import at_least_passes, passes_ns
from presim.cost.chain import price_trace
from presim.cost.price import Origin, Price
from presim.trace.builder import TraceBuilder
from presim.trace.signatures import Reduction, Softmax

H100, H200 = (device_of(hardware.gpu(gpu)) for gpu in ("h100-sxm", "h200"))
SHORT = Price(1_000, Origin.ANALYTIC, 0.3, "analytic/softmax", "latency")


def loss(rows: int, row: int, element_bytes: int = 4, backward: bool = False) -> Softmax:
    """Of logits in one type; backward reads the gradient and the result."""
    size = rows * row * element_bytes
    operator = "aten::_log_softmax_backward_data" if backward else "aten::_log_softmax"
    dtype = {2: "bfloat16", 4: "float32"}[element_bytes]
    return Softmax((2 if backward else 1) * size, size, rows * row, dtype, operator=operator, row=row)


@pytest.mark.parametrize(
    ("signature", "device", "measured_ms"),
    [
        (loss(4096, 128256), H100, 2.79),  # Llama 3.2 1B
        (loss(4096, 128256), H200, 2.01),
        (loss(4096, 50272), H100, 1.10),  # OPT 1.3B
        (loss(4096, 50272), H200, 0.80),
        (loss(4096, 128256, backward=True), H100, 2.87),
    ],
)
def test_losses_take_what_they_took_in_measured_steps(signature: Softmax, device: Device, measured_ms: float) -> None:
    assert passes_ns(signature, device) / 1e6 == pytest.approx(measured_ms, rel=0.05)


def test_rows_that_stay_in_the_cache_are_read_from_memory_once() -> None:
    """BERT's loss in 16 bits: all resident rows fill a third of the cache."""
    kept = loss(8192, 30522, element_bytes=2)
    assert passes_ns(kept, H100) == pytest.approx(kept.bytes / 3.35e12 / 0.88 * 1e9, rel=0.02)


@pytest.mark.parametrize(
    "signature",
    [
        loss(4096, 8192),  # kept in shared memory
        msgspec.structs.replace(loss(4096, 128256), operator="topk"),
        msgspec.structs.replace(loss(4096, 128256), row=0),
    ],
)
def test_other_kernels_have_no_such_passes(signature: Softmax) -> None:
    assert passes_ns(signature, H100) == 0


def test_measured_longer_and_other_prices_stay() -> None:
    measured = msgspec.structs.replace(SHORT, origin=Origin.MEASURED)
    longer = msgspec.structs.replace(SHORT, duration_ns=10**8)
    assert at_least_passes(loss(4096, 128256), measured, H100) is measured
    assert at_least_passes(loss(4096, 128256), longer, H100) is longer
    assert at_least_passes(Reduction(1 << 30, 4, 1 << 28, "float32"), SHORT, H100) is SHORT


def test_the_chain_applies_it() -> None:
    build = TraceBuilder()
    build.work(loss(4096, 128256))
    (price,) = price_trace(build.trace(), hardware.choose_cluster(gpu="h100-sxm")).prices
    assert price.duration_ns >= passes_ns(loss(4096, 128256), H100)
    assert price.bound == "memory"
