"""Tables of measurements keep what was put in, and let nothing in that cannot be true without counting it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance import strategies as made
from presim import hardware
from presim.cost.analytic.analytic_estimator import AnalyticEstimator
from presim.cost.measured import table
from presim.cost.measured.measured_rows import Measurement
from presim.errors import InputError
from presim.trace.signatures import Elementwise, Gemm, Signature

GEMM = Gemm(4096, 4096, 4096, 1, "bfloat16")
GPU = hardware.gpu("h100-sxm")
ROW = Measurement(gpu="h100-sxm", signature=GEMM, duration_ns=2e5, source="test", spread=0.02, samples=30)
NAME = "a" + table.SUFFIX


def saved(path: Path, *rows: Measurement) -> Path:
    table.write(rows, path / NAME, {"driver": "580"})
    return path / NAME


@settings(max_examples=20, deadline=None)
@given(st.lists(made.signatures(), max_size=8, unique=True))
def test_rows_are_read_as_they_were_written(tmp_path_factory: pytest.TempPathFactory, work: list[Signature]) -> None:
    twice = [2e3 + 2 * (price.duration_ns if price else 0) for price in AnalyticEstimator(GPU).price(work)]
    rows = [Measurement(gpu=GPU.id, signature=each, duration_ns=ns, source="test") for each, ns in zip(work, twice)]
    path = saved(tmp_path_factory.mktemp("table"), *rows)
    assert set(table.read([path]).rows) == set(rows)
    assert table.origin_of(path) == {"driver": "580"}


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    other = Measurement(gpu="h100-sxm", signature=Elementwise(1, 1, 1, "int8"), duration_ns=2e3, source="test")
    first = saved(tmp_path, ROW, other).read_bytes()
    assert saved(tmp_path, other, ROW).read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"duration_ns": 100.0}, "a duration outside 0.2 us to 10 min: another unit?"),
        ({"duration_ns": 100000.0}, "faster than the datasheet's peak allows"),
        ({"duration_ns": -1.0}, "a duration that is not a positive number"),
        ({"duration_ns": float("nan")}, "a duration that is not a positive number"),
        ({"duration_ns": 1e15}, "a duration outside 0.2 us to 10 min: another unit?"),
        ({"duration_ns": 2e5 * 1000}, "a hundred times as slow as the formula says: another unit?"),
        ({"spread": float("nan")}, "a spread or a number of samples that cannot be"),
        ({"samples": 0}, "a spread or a number of samples that cannot be"),
        ({"signature": msgspec.structs.replace(GEMM, m=0)}, "sizes that are no positive numbers"),
        ({"signature": msgspec.structs.replace(GEMM, k=-4096)}, "a signature that is none"),
        ({"gpu": "h9000"}, "a GPU that the catalogue does not have: h9000"),
    ],
)
def test_rows_that_cannot_be_true_are_counted(tmp_path: Path, changes: dict[str, object], reason: str) -> None:
    bad = msgspec.structs.replace(ROW, **changes)
    read = table.read([saved(tmp_path, ROW, bad)])
    assert read.rows == (ROW,)
    assert read.rejected == {reason: 1}


def test_rows_of_other_gpus_are_not_read_where_one_is_asked_for(tmp_path: Path) -> None:
    """They are named; those of no GPU are counted all the same."""
    rows = [msgspec.structs.replace(ROW, gpu=gpu) for gpu in ("h100-sxm", "h200", "h9000")]
    read = table.read([saved(tmp_path, *rows)], "h100-sxm")
    assert read.rows == (ROW,)
    assert read.gpus == ("h100-sxm", "h200")
    assert read.rejected == {"a GPU that the catalogue does not have: h9000": 1}


def test_a_second_row_is_counted(tmp_path: Path) -> None:
    path = saved(tmp_path, ROW)
    assert table.read([path, path]).rejected == {"a second row for the same work and source": 1}


def test_rows_of_another_shape_are_counted(tmp_path: Path) -> None:
    path = saved(tmp_path, ROW)
    whole = pq.read_table(path)
    columns = {name: whole[name].to_pylist() * 3 for name in whole.column_names}
    columns["signature"][1] = '{"family": "gemm"}'
    columns["duration_ns"][2] = None
    pq.write_table(pa.table(columns).replace_schema_metadata(whole.schema.metadata), path)
    assert table.read([path]).rejected == {"a signature that is none": 1, "an empty cell": 1}


def test_cells_that_should_be_numbers_are_counted(tmp_path: Path) -> None:
    path = saved(tmp_path, ROW)
    whole = pq.read_table(path)
    columns = {name: whole[name].to_pylist() * 2 for name in whole.column_names}
    columns["duration_ns"] = ["12.5 us", "900000"]
    pq.write_table(pa.table(columns).replace_schema_metadata(whole.schema.metadata), path)
    found = table.read([path])
    assert found.rejected == {"a cell that should be a number and is none": 1}
    assert [row.duration_ns for row in found.rows] == [900000]


def test_files_that_are_no_tables_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no")
    with pytest.raises(InputError, match="text cannot be read as Parquet"):
        table.read([tmp_path / "text"])
    pq.write_table(pa.table({"gpu": ["h100"]}), tmp_path / "foreign")
    with pytest.raises(InputError, match="foreign is not a table of measured prices: presim's header is missing"):
        table.read([tmp_path / "foreign"])
    path = saved(tmp_path, ROW)
    whole = pq.read_table(path)
    pq.write_table(whole.drop_columns(["spread", "gpu"]), path)
    with pytest.raises(InputError, match="lacks the columns gpu, spread"):
        table.read([path])
