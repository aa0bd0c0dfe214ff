"""The possible rows of one GPU's tables in columns, without an object for each row.

Most rows of a large table are proven possible by comparisons of whole columns. The others, and tables whose columns
have other types than presim writes, are read row by row (`presim.cost.measured.table`), so that both ways agree.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from presim.cost.bounds import datasheet_ns
from presim.cost.measured import measured_rows, table
from presim.cost.measured.signature_keys import Keys, keys_of
from presim.hardware import Gpu, catalogue
from presim.trace.signatures import Signature

if TYPE_CHECKING:
    import pyarrow as pa

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class RowColumns:
    """Possible rows in the order of the files, and what else is known of the tables."""

    signatures: list[Signature]  # some may be equal, and some may have no row
    keys: Keys  # of signatures
    owners: Integers  # index of each row's signature
    durations_ns: Floats
    spreads: Floats
    sources: list[str]
    source_codes: Integers  # index of each row's source
    rejected: dict[str, int]  # rows by reason
    gpus: tuple[str, ...]  # catalogue GPUs that the tables have rows of


def read(paths: Sequence[Path], gpu: Gpu) -> RowColumns:
    """Read the rows of a GPU; rows without a known GPU are counted.

    Raises:
        InputError: a file is no table, is of another version, or lacks a column.
    """
    import pyarrow as pa

    contents = [table.content(path) for path in paths]
    if not contents or not all(content.schema.types == table.column_types() for content in contents):
        return of_rows(table.read(paths, gpu.id), gpu)
    gpus = {name for content in contents for name in content["gpu"].unique().to_pylist()}
    known_gpus = tuple(sorted(name for name in gpus if name in catalogue.ids(Gpu)))
    plain = pa.concat_tables([table.of_gpu(content, gpu.id).replace_schema_metadata(None) for content in contents])
    return _of_content(plain, gpu, known_gpus)


def of_rows(rows: table.Table, gpu: Gpu) -> RowColumns:
    """The columns of rows."""
    its_rows = [row for row in rows.rows if row.gpu == gpu.id and not row.other_work]
    signatures = list(dict.fromkeys(row.signature for row in its_rows))
    sources = sorted({row.source for row in its_rows})
    index_of, code_of = ({value: index for index, value in enumerate(values)} for values in (signatures, sources))
    return RowColumns(
        signatures=signatures,
        keys=keys_of(signatures),
        owners=np.array([index_of[row.signature] for row in its_rows], np.int64),
        durations_ns=np.array([row.duration_ns for row in its_rows], np.float64),
        spreads=np.array([row.spread for row in its_rows], np.float64),
        sources=sources,
        source_codes=np.array([code_of[row.source] for row in its_rows], np.int64),
        rejected=rows.rejected,
        gpus=rows.gpus,
    )


def _of_content(content: pa.Table, gpu: Gpu, gpus: tuple[str, ...]) -> RowColumns:
    texts, text_codes = _coded(content["signature"])
    decoded = table.signatures_of(texts)
    signatures = [signature for signature in decoded if signature is not None]
    is_decoded = np.array([signature is not None for signature in decoded], bool)
    owners = np.append(np.where(is_decoded, np.cumsum(is_decoded) - 1, -1), -1)[text_codes]  # last: empty cells
    keys = keys_of(signatures)
    sources, source_codes = _coded(content["source"])
    durations = _filled(content["duration_ns"], float("nan"), np.float64)
    spreads = _filled(content["spread"], float("nan"), np.float64)
    samples = _filled(content["samples"], 0, np.int64)
    names, gpu_codes = _coded(content["gpu"])
    catalogued = measured_rows.catalogued(gpu.id)
    proven = (owners >= 0) & np.isin(gpu_codes, [names.index(gpu.id)] if catalogued and gpu.id in names else [])
    proven &= np.isin(source_codes, [code for code, source in enumerate(sources) if source])
    proven &= (spreads >= 0) & (spreads < np.inf) & (samples >= 1)
    proven &= _plausible(durations, owners, signatures, catalogued or gpu)
    rejected: collections.Counter[str] = collections.Counter()
    open_rows = [table.row_of(row) for row in content.filter(_mask(~proven)).to_pylist()]
    measured = [row for row in open_rows if not isinstance(row, str)]
    reasons = iter(measured_rows.reasons_to_reject(measured))
    for index, row in zip(np.flatnonzero(~proven).tolist(), open_rows):
        reason = row if isinstance(row, str) else next(reasons)
        proven[index] = not reason
        rejected.update([reason] if reason else [])
    repeated = _repeated(owners, source_codes, keys, np.flatnonzero(proven))
    if len(repeated):
        rejected[measured_rows.REPEATED] += len(repeated)
        proven[repeated] = False
    return RowColumns(
        signatures, keys, owners[proven], durations[proven], spreads[proven], sources, source_codes[proven],
        dict(sorted(rejected.items())), gpus,
    )  # fmt: skip


def _plausible(durations: Floats, owners: Integers, signatures: list[Signature], gpu: Gpu) -> NDArray[np.bool_]:
    """Rows whose sizes are possible and whose durations are neither too short nor too long for them."""
    least = [datasheet_ns(signature, gpu) if _has_sizes(signature) else np.inf for signature in signatures]
    shortest = np.array([*least, np.inf])[owners]  # the last stands for no signature
    return measured_rows.plausible(durations, shortest)


def _has_sizes(signature: Signature) -> bool:
    """Whether no size is 0 that has to be positive; what was read is not negative."""
    sizes_of = _sizes_getter(type(signature))
    return 0 not in sizes_of(signature) if sizes_of else measured_rows.possible(signature)


@functools.cache
def _sizes_getter(kind: type[Signature]) -> Callable[[Signature], tuple[Any, ...]] | None:
    """Reads the fields that have to be positive, behind others; None for a class that has some in tuples."""
    names = measured_rows.positive_fields(kind)
    return None if names is None else operator.attrgetter("__class__", "__class__", *names)


def _repeated(owners: Integers, source_codes: Integers, keys: Keys, rows: Integers) -> Integers:
    """Those of the rows whose work and source an earlier one has."""
    _, work = np.unique(keys, return_inverse=True)
    pairs = work[owners[rows]] * (int(source_codes.max(initial=0)) + 1) + source_codes[rows]
    _, first = np.unique(pairs, return_index=True)
    return np.delete(rows, first)


def _coded(column: pa.ChunkedArray) -> tuple[list[str], Integers]:
    """The distinct texts of a column and the index of each row's; -1 for an empty cell."""
    coded = _whole(column).dictionary_encode()
    texts: list[str] = coded.dictionary.to_pylist()
    return texts, _numbers(coded.indices.fill_null(-1), np.int32).astype(np.int64)


def _filled(column: pa.ChunkedArray, value: float, dtype: Any) -> NDArray[Any]:
    """The numbers of a column, with a value for empty cells."""
    whole = _whole(column)
    return _numbers(whole.fill_null(value) if whole.null_count else whole, dtype)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    import pyarrow as pa

    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _numbers(column: pa.Array, dtype: Any) -> NDArray[Any]:
    """Without pandas, which pyarrow's own conversions import (`presim.system.files.numbers_of`)."""
    if not len(column):
        return np.empty(0, dtype)
    return np.frombuffer(column.buffers()[1], dtype, len(column), column.offset * np.dtype(dtype).itemsize)


def _mask(rows: NDArray[np.bool_]) -> pa.Array:
    import pyarrow as pa

    bits = pa.py_buffer(np.packbits(rows, bitorder="little").tobytes())
    return pa.Array.from_buffers(pa.bool_(), len(rows), [None, bits])
