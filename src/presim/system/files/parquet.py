"""Reads and writes Parquet tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from presim.system.files.file_limits import MOST_CELLS, FormatError

if TYPE_CHECKING:
    import pyarrow as pa


def read_parquet(source: Path | bytes) -> tuple[pa.Table, dict[bytes, bytes]]:
    """The table of a file or of its content, and the file's metadata.

    Raises:
        FormatError: it cannot be read, or has more than `MOST_CELLS` cells.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(source if isinstance(source, Path) else pa.BufferReader(source)) as file:
            cells = file.metadata.num_rows * file.metadata.num_columns
            if cells > MOST_CELLS:
                raise FormatError(f"it says that it has {cells:,} cells, more than {MOST_CELLS:,}")
            # `pyarrow.parquet.read_table` imports pandas where it is installed
            return file.read(use_threads=False), dict(file.metadata.metadata or {})
    except FormatError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FormatError(str(error).partition("\n")[0].strip() or type(error).__name__) from error


def encode_parquet(table: pa.Table, metadata: dict[str, str] | None = None, **options: Any) -> bytes:
    """The content of a file, compressed with zstd. ``options``: as of `pyarrow.parquet.ParquetWriter`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = pa.BufferOutputStream()
    with pq.ParquetWriter(content, table.schema, compression="zstd", **options) as writer:
        writer.write_table(table)
        if metadata:
            writer.add_key_value_metadata(metadata)
    data: bytes = content.getvalue().to_pybytes()
    return data
