"""Columns of integers are read and written without pandas, which pyarrow would import."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.system.files import column_of, encode_parquet, numbers_of, read_parquet

TYPES = ("uint8", "uint16", "int32", "int64")
WITHOUT_PANDAS = """
import sys
import numpy as np
import pyarrow as pa
from presim.system.files import column_of, encode_parquet, numbers_of, read_parquet

table, _ = read_parquet(encode_parquet(pa.table({"numbers": column_of(np.arange(5))})))
assert numbers_of(table.column("numbers")).tolist() == [0, 1, 2, 3, 4]
assert "pandas" not in sys.modules
"""


@given(st.sampled_from(TYPES), st.lists(st.lists(st.integers(0, 255), max_size=5), max_size=4), st.integers(0, 3))
def test_numbers_are_those_of_the_column(dtype: str, parts: list[list[int]], skipped: int) -> None:
    """Of any number of chunks, from any offset."""
    chunks = [column_of(np.array(part, dtype)) for part in parts]
    column = pa.chunked_array(chunks, pa.from_numpy_dtype(np.dtype(dtype))).slice(skipped)
    numbers = numbers_of(column)
    assert numbers is not None
    assert numbers.dtype == dtype
    assert numbers.tolist() == column.to_pylist()


@pytest.mark.parametrize("column", [pa.array([1.0]), pa.array([1, None]), pa.array(["1"]), pa.array([True])])
def test_other_columns_have_no_numbers(column: pa.Array) -> None:
    assert numbers_of(pa.chunked_array([column])) is None


def test_a_file_is_the_same_as_by_pyarrow() -> None:
    numbers = np.arange(1000, dtype=np.int32)[::2]
    assert encode_parquet(pa.table({"a": column_of(numbers)})) == encode_parquet(pa.table({"a": numbers}))
    assert (
        read_parquet(encode_parquet(pa.table({"a": column_of(numbers)})))[0].column("a").to_pylist() == numbers.tolist()
    )


def test_pandas_is_not_imported() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_PANDAS], check=True)
