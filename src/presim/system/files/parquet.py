"""Reads and writes Parquet tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from presim.system.files.file_limits import MOST_CELLS, FormatError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


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


def numbers_of(column: pa.ChunkedArray) -> NDArray[np.generic] | None:
    """The integers of a column; None if it has others, or gaps.

    pyarrow's own ``to_numpy`` imports pandas where that is installed, which takes half a second of CPU time.
    """
    import numpy as np
    import pyarrow as pa

    if column.null_count or not pa.types.is_integer(column.type):
        return None
    dtype = np.dtype(str(column.type))
    parts = [
        np.frombuffer(chunk.buffers()[1], dtype, len(chunk), chunk.offset * dtype.itemsize)
        for chunk in column.chunks
        if len(chunk)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, dtype), *parts])


def column_of(numbers: NDArray[np.generic]) -> pa.Array:
    """A column of integers, which shares their memory; ``pyarrow.array`` imports pandas as ``to_numpy`` does."""
    import numpy as np
    import pyarrow as pa

    content = pa.py_buffer(np.ascontiguousarray(numbers))
    return pa.Array.from_buffers(pa.from_numpy_dtype(numbers.dtype), len(numbers), [None, content])
