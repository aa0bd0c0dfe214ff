"""Kept columns of measured prices give the prices of the rows that they were made of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from presim import hardware
from presim.cost import estimators
from presim.cost.analytic.analytic_estimator import AnalyticEstimator
from presim.cost.measured import price_columns, table
from presim.cost.measured.measured_estimator import MeasuredEstimator
from presim.cost.measured.measured_rows import PROFILE, Measurement
from presim.cost.price import Price
from presim.trace.signatures import Elementwise, Gemm, Signature

GPU = hardware.gpu("h100-sxm")


def measurement(signature: Signature, factor: float) -> Measurement:
    (price,) = AnalyticEstimator(GPU).price([signature])
    assert price is not None
    return Measurement(
        gpu=GPU.id, signature=signature, duration_ns=factor * price.duration_ns, source=PROFILE, spread=factor / 100
    )


sizes = some.integers(1, 64).map(lambda number: 64 * number)
signatures = some.one_of(
    some.builds(Gemm, sizes, sizes, sizes, some.just(1), some.just("bfloat16")),
    some.builds(lambda size: Elementwise(size, size, size // 2, "bfloat16"), sizes),
)
rows = some.lists(some.builds(measurement, signatures, some.floats(1.0, 3.0)), max_size=12)


@given(rows, some.lists(signatures, max_size=6))
def test_prices_of_columns_are_those_of_the_rows(measured: list[Measurement], others: list[Signature]) -> None:
    first = MeasuredEstimator(GPU, measured)
    columns = price_columns.columns_of(first, table.Table(tuple(measured), {}))
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(columns), type=price_columns.Columns)
    asked = [*(row.signature for row in measured), *others]
    assert price_columns.estimator_of(decoded, GPU).price(asked) == first.price(asked)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Path], list[Price | None]]:
    """Prices of a folder, read as by a new process; tables of any size are kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(price_columns, "LEAST_BYTES", 0)

    def prices(folder: Path) -> list[Price | None]:
        estimators._read.cache_clear()
        measured = estimators.estimators(GPU, [folder])[0]
        return measured.price([Gemm(128, 256, 512, 1, "bfloat16")])

    return prices


def test_tables_are_indexed_once_and_again_when_they_change(
    read: Callable[[Path], list[Price | None]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "prices"
    folder.mkdir()
    row = measurement(Gemm(128, 256, 512, 1, "bfloat16"), 1.5)
    table.write([row], folder / f"a{table.SUFFIX}", {})
    first = read(folder)
    with monkeypatch.context() as context:
        context.setattr(table, "read", None)
        assert read(folder) == first
    table.write([msgspec.structs.replace(row, duration_ns=9 * row.duration_ns)], folder / f"a{table.SUFFIX}", {})
    assert read(folder) != first


def test_a_damaged_file_is_made_again(read: Callable[[Path], list[Price | None]], tmp_path: Path) -> None:
    folder = tmp_path / "prices"
    folder.mkdir()
    table.write([measurement(Gemm(128, 256, 512, 1, "bfloat16"), 1.5)], folder / f"a{table.SUFFIX}", {})
    first = read(folder)
    (path,) = (tmp_path / "cache" / "presim" / "prices").iterdir()
    path.write_bytes(b"\x93damaged")
    assert read(folder) == first
    assert path.read_bytes() != b"\x93damaged"
