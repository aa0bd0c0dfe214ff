"""An index of measured rows gives the prices of the rows that it was made of, and leaves out the same rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from conformance import strategies as made
from presim import hardware
from presim.cost import estimators
from presim.cost.analytic.analytic_estimator import AnalyticEstimator
from presim.cost.measured import row_columns, row_index, table
from presim.cost.measured.axes import axes
from presim.cost.measured.measured_estimator import MeasuredEstimator
from presim.cost.measured.measured_rows import PROFILE, Measurement
from presim.cost.measured.signature_keys import axis_columns, axis_key, keys_of
from presim.cost.price import Price
from presim.trace.signatures import Attention, Copy, Elementwise, Fused, Gemm, Signature

GPU = hardware.gpu("h100-sxm")


def measurement(signature: Signature, factor: float, source: str = PROFILE) -> Measurement:
    (price,) = AnalyticEstimator(GPU).price([signature])
    assert price is not None
    return Measurement(
        gpu=GPU.id, signature=signature, duration_ns=factor * price.duration_ns, source=source, spread=factor / 100
    )


sizes = some.integers(1, 64).map(lambda number: 64 * number)
signatures = some.one_of(
    some.builds(Gemm, sizes, sizes, sizes, some.just(1), some.just("bfloat16")),
    some.builds(lambda size, cut: Elementwise(size, size, size // cut, "bfloat16"), sizes, some.integers(2, 3)),
    some.builds(lambda rows: Attention("forward", 2, 8, 8, rows, rows, 128, 128, True, "bfloat16", "flash"), sizes),
    some.builds(lambda size: Copy("d2d", size), sizes),
)
sources = some.sampled_from((PROFILE, "aiconfigurator vllm", "simumax", "neusight"))
rows = some.lists(some.builds(measurement, signatures, some.floats(1.0, 3.0), sources), max_size=12)


def indexed(path: Path) -> MeasuredEstimator:
    """The estimator of a table's index, as a later process reads it."""
    encoded = msgspec.msgpack.encode(row_index.index_of(row_columns.read([path], GPU)))
    index = msgspec.msgpack.decode(encoded, type=row_index.RowIndex)
    return MeasuredEstimator(GPU, lookups=row_index.IndexedLookups(index, GPU, AnalyticEstimator(GPU)))


@settings(deadline=None)
@given(rows, some.lists(signatures, max_size=6))
def test_prices_of_an_index_are_those_of_the_rows(
    tmp_path_factory: pytest.TempPathFactory, measured: list[Measurement], others: list[Signature]
) -> None:
    path = tmp_path_factory.mktemp("table") / f"a{table.SUFFIX}"
    table.write(measured, path, {})
    first = MeasuredEstimator(GPU, table.read([path]).rows)
    asked = [*(row.signature for row in measured), *others]
    assert indexed(path).price(asked) == first.price(asked)


wrong = some.sampled_from(
    (
        {}, {}, {"duration_ns": 100.0}, {"duration_ns": float("nan")}, {"duration_ns": 1e15}, {"duration_ns": 5e10},
        {"spread": float("nan")}, {"spread": -0.1}, {"samples": 0}, {"gpu": "h9000"}, {"gpu": "h200"}, {"gpu": ""},
        {"source": ""}, {"signature": Gemm(0, 64, 64, 1, "bfloat16")}, {"signature": Gemm(-64, 64, 64, 1, "bfloat16")},
        {"signature": Fused("a", 8, 8, 4, "float32", products=(("bfloat16", 0),))},
    )
)  # fmt: skip


@settings(deadline=None)
@given(some.lists(some.tuples(some.builds(measurement, signatures, some.just(1.5), sources), wrong), max_size=8))
def test_rows_are_left_out_for_the_same_reasons(
    tmp_path_factory: pytest.TempPathFactory, changed: list[tuple[Measurement, dict[str, object]]]
) -> None:
    path = tmp_path_factory.mktemp("table") / f"a{table.SUFFIX}"
    table.write([msgspec.structs.replace(row, **changes) for row, changes in changed], path, {})
    read = table.read([path, path], GPU.id)
    columns, expected = row_columns.read([path, path], GPU), row_columns.of_rows(read, GPU)
    assert (columns.rejected, columns.gpus) == (read.rejected, read.gpus)
    assert columns.durations_ns.tolist() == expected.durations_ns.tolist()
    assert [columns.signatures[owner] for owner in columns.owners] == [row.signature for row in read.rows]


def test_cells_of_other_types_are_read_row_by_row(tmp_path: Path) -> None:
    path = tmp_path / f"a{table.SUFFIX}"
    row = measurement(Gemm(128, 256, 512, 1, "bfloat16"), 1.5)
    table.write([row], path, {})
    whole = pq.read_table(path)
    columns = {name: whole[name].to_pylist() * 3 for name in whole.column_names}
    columns["duration_ns"] = [str(row.duration_ns), "12.5 us", None]
    pq.write_table(pa.table(columns).replace_schema_metadata(whole.schema.metadata), path)
    read = row_columns.read([path], GPU)
    assert read.durations_ns.tolist() == [row.duration_ns]
    assert read.rejected == {"an empty cell": 1, "a cell that should be a number and is none": 1}


def test_empty_cells_are_counted(tmp_path: Path) -> None:
    path = tmp_path / f"a{table.SUFFIX}"
    table.write([measurement(Gemm(128, 256, 512, 1, "bfloat16"), 1.5)], path, {})
    whole = pq.read_table(path)
    for name in whole.column_names:
        values = {other: whole[other].to_pylist() * 2 for other in whole.column_names}
        values[name][1] = None
        cells = pa.table(values, schema=whole.schema)
        pq.write_table(cells, path)
        assert row_columns.read([path], GPU).rejected == table.read([path], GPU.id).rejected
        assert len(row_columns.read([path], GPU).owners) == 1


@settings(max_examples=50, deadline=None)
@given(some.lists(made.signatures(), max_size=12))
def test_keys_are_equal_where_signatures_and_axes_are(work: list[Signature]) -> None:
    keys, places = keys_of(work).tolist(), axis_columns(work)
    assert len(set(keys)) == len(set(work))
    assert keys == [int(keys_of([signature])[0]) for signature in work]
    expected = sorted((axis_key(key), size, owner) for owner, each in enumerate(work) for key, size in axes(each))
    assert sorted(zip(places.keys.tolist(), places.sizes.tolist(), places.owners.tolist())) == expected


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Path], list[Price | None]]:
    """Prices of a folder, read as by a new process; tables of any size are kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(row_index, "LEAST_BYTES", 0)

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
        context.setattr(row_columns, "read", None)
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


def test_no_row_is_priced_before_it_is_asked_for(
    read: Callable[[Path], list[Price | None]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A table of 200,000 rows costs what the job's few signatures and their neighbours cost."""
    folder = tmp_path / "prices"
    folder.mkdir()
    measured = [measurement(Gemm(128 * m, 256, 512, 1, "bfloat16"), 1.5) for m in range(1, 40)]
    table.write(measured, folder / f"a{table.SUFFIX}", {})
    asked: list[Signature] = []
    formula = AnalyticEstimator.price

    def counted(self: AnalyticEstimator, signatures: list[Signature]) -> list[Price | None]:
        asked.extend(signatures)
        return formula(self, signatures)

    monkeypatch.setattr(AnalyticEstimator, "price", counted)
    read(folder)
    assert set(asked) == {Gemm(128, 256, 512, 1, "bfloat16")}
