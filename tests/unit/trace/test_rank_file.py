"""One rank's file: what is none is told in a sentence."""

from __future__ import annotations

import pathlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from presim.errors import InputError
from presim.trace import rank_file
from support import workloads


def parquet_bytes(table: pa.Table, metadata: dict[bytes, bytes] | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(metadata or {})
    return bytes(sink.getvalue())


def test_a_foreign_parquet_file_is_not_taken_for_a_trace() -> None:
    path = pathlib.Path("x.parquet")
    with pytest.raises(InputError, match=r"x\.parquet is not a Parquet file presim can read"):
        rank_file.parse(b"nothing", path)
    with pytest.raises(InputError, match="not one of presim's traces"):
        rank_file.parse(parquet_bytes(pa.table({"a": [1]})), path)


def test_a_column_that_is_missing_or_points_outside_its_table_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "rank.parquet"
    path.write_bytes(rank_file.encode(workloads.llama_8b(steps=1, layers=1)))
    table, metadata = pq.read_table(path), pq.read_metadata(path).metadata
    with pytest.raises(InputError, match="has no column 'stream' of type uint16"):
        rank_file.parse(parquet_bytes(table.drop_columns(["stream"]), metadata), path)
    index = table.schema.get_field_index("signature")
    wild = table.set_column(index, "signature", pa.array([999] * len(table), pa.int32()))
    with pytest.raises(InputError, match="column 'signature' points outside its table of 17 values"):
        rank_file.parse(parquet_bytes(wild, metadata), path)
