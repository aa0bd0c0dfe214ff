"""Tables of measurements: Parquet files with a schema and the origin of every row.

One row is one `Measurement`; its signature is JSON, as in traces. Several files form one table. Impossible rows
(`rows.reason_to_reject`) are left out and counted by reason when a table is read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from presim.cost.measured.measured_rows import Intake, Measurement
from presim.errors import InputError
from presim.hardware import Gpu, catalogue
from presim.system.files import FormatError, decode_json, encode_parquet, read_parquet, write_file
from presim.trace.signatures import Signature

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT, VERSION = "presim-measured-prices", 1
SUFFIX = ".measured.parquet"
_COLUMNS = ("gpu", "signature", "duration_ns", "spread", "samples", "source")
_KEY = b"presim"


@dataclasses.dataclass(frozen=True)
class Table:
    """Possible rows in the order of the files, and the number of rejected rows by reason."""

    rows: tuple[Measurement, ...]
    rejected: dict[str, int]
    gpus: tuple[str, ...] = ()  # catalogue GPUs that the files have rows of, read or not


def write(rows: Iterable[Measurement], path: str | os.PathLike[str], origin: dict[str, str]) -> None:
    """Write sorted rows atomically; the same rows give the same bytes.

    ``origin``: common to all rows: the driver, the versions, the dataset's commit.
    """
    import pyarrow as pa

    listed = sorted(rows, key=lambda row: (row.gpu, _text(row.signature), row.source, row.duration_ns))
    columns: dict[str, Any] = {name: [getattr(row, name) for row in listed] for name in _COLUMNS}
    columns["signature"] = [_text(row.signature) for row in listed]
    header = json.dumps({"format": FORMAT, "version": VERSION, "origin": origin}, sort_keys=True)
    schema = pa.schema(list(zip(_COLUMNS, column_types())), metadata={_KEY: header.encode()})
    write_file(path, encode_parquet(pa.table(columns, schema=schema)))


def read(paths: Sequence[Path], gpu: str = "") -> Table:
    """Read tables. With ``gpu``, keep the rows of this GPU, and count those of GPUs outside the catalogue.

    Raises:
        InputError: a file is no such table, is of another version, or lacks a column.
    """
    intake = Intake()
    gpus: set[str] = set()
    for path in paths:
        rows = content(path)
        gpus.update(name for name in rows["gpu"].unique().to_pylist() if name in catalogue.ids(Gpu))
        intake.take(row_of(row) for row in (of_gpu(rows, gpu) if gpu else rows).to_pylist())
    return Table(tuple(intake.accepted), dict(sorted(intake.rejected.items())), tuple(sorted(gpus)))


def find(folder: Path) -> list[Path]:
    """The tables of a folder."""
    return sorted(folder.glob(f"*{SUFFIX}"))


def origin_of(path: Path) -> dict[str, str]:
    """The origin in a table's header."""
    return dict(_header(path, _parquet(path)[1])["origin"])


def column_types() -> list[pa.DataType]:
    """Types of the columns, as `write` has them."""
    import pyarrow as pa

    return [pa.string(), pa.string(), pa.float64(), pa.float64(), pa.int64(), pa.string()]


def content(path: Path) -> pa.Table:
    """The columns of a table.

    Raises:
        InputError: the file is no table, is of another version, or lacks a column.
    """
    table, metadata = _parquet(path)
    _header(path, metadata)
    missing = [name for name in _COLUMNS if name not in table.column_names]
    if missing:
        raise InputError(f"{path} lacks the columns {', '.join(missing)}")
    return table.select(list(_COLUMNS))


def _parquet(path: Path) -> tuple[pa.Table, dict[bytes, bytes]]:
    try:
        return read_parquet(path)
    except FormatError as error:
        raise InputError(f"{path} cannot be read as Parquet: {error}; copy it again") from error


def of_gpu(content: pa.Table, gpu: str) -> pa.Table:
    """The columns of a table without the rows of other GPUs of the catalogue."""
    import pyarrow as pa
    import pyarrow.compute as pc

    other_gpus = pa.array([name for name in catalogue.ids(Gpu) if name != gpu], content.schema.field("gpu").type)
    return content.filter(pc.invert(pc.is_in(content["gpu"], value_set=other_gpus)))


def _header(path: Path, metadata: dict[bytes, bytes] | None) -> dict[str, Any]:
    try:
        header: dict[str, Any] = decode_json((metadata or {})[_KEY])
        format_version = (header["format"], header["version"])
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path} is not a table of measured prices: presim's header is missing") from error
    if format_version != (FORMAT, VERSION):
        raise InputError(
            f"{path} is {format_version[0]} version {format_version[1]}; this presim reads {FORMAT} version {VERSION}"
        )
    return header


def signature_of(text: Any) -> Signature | None:
    """The signature of a cell; None if it holds none."""
    try:
        signature: Signature = decode_json(text, Signature)
    except (FormatError, TypeError, AttributeError):
        return None
    return signature


def signatures_of(texts: Sequence[str]) -> list[Signature | None]:
    """The signatures of many cells, decoded together where each text is one object without others in it."""
    if all(text[:1] == "{" and text.count("{") == 1 for text in texts):
        with contextlib.suppress(FormatError):
            signatures = decode_json(f"[{','.join(texts)}]", list[Signature])
            if len(signatures) == len(texts):
                return [*signatures]
    return [signature_of(text) for text in texts]


def row_of(row: dict[str, Any]) -> Measurement | str:
    """The measurement of a row's cells by column, or the reason why there is none."""
    signature = signature_of(row["signature"])
    if signature is None:
        return "a signature that is none"
    numbers = (row["duration_ns"], row["spread"], row["samples"])
    if any(number is None for number in numbers) or not row["gpu"] or not row["source"]:
        return "an empty cell"
    try:
        duration, spread, samples = float(numbers[0]), float(numbers[1]), int(numbers[2])
    except (ValueError, TypeError, OverflowError):
        return "a cell that should be a number and is none"
    return Measurement(
        gpu=str(row["gpu"]), signature=signature, duration_ns=duration, source=str(row["source"]),
        spread=spread, samples=samples,
    )  # fmt: skip


def _text(signature: Signature) -> str:
    return msgspec.json.encode(signature, order="sorted").decode()
