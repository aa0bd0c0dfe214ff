"""A GPU's measured rows in columns on disk, ordered so that the few that a job asks for are found at once.

Prices are made of rows when they are asked for, not when a table is read. A file's name is a digest of the tables'
content, of the GPU's figures and of presim's sources; it is written under a temporary name.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import platformdirs

from presim.cost.analytic.analytic_estimator import AnalyticEstimator, slowdown_at_work
from presim.cost.measured.axes import LINES, Key
from presim.cost.measured.measured_estimator import AxisPoint, Timings
from presim.cost.measured.row_columns import RowColumns
from presim.cost.measured.signature_keys import axis_columns, axis_key, keys_of
from presim.errors import InputError
from presim.hardware import Gpu
from presim.system.files import FormatError, decode_messagepack, digest_of, make_folder, read_bytes, version, write_file
from presim.trace.signatures import Signature

LEAST_BYTES = 50_000  # of all tables: smaller ones have at most some thousand rows
_PARTS = ("cost", "hardware", "constants", "trace", "files")  # of presim's sources
_MOST_FILES = 32  # kept; the oldest are deleted


class RowIndex(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one GPU by signature, and signatures by axis; numbers as bytes of little-endian columns."""

    rejected: dict[str, int]  # rows by reason
    gpus: tuple[str, ...]  # catalogue GPUs that the tables have rows of
    sources: tuple[str, ...]
    keys: bytes  # u8, of signatures, ascending
    row_ends: bytes  # i8, of each signature's rows
    durations_ns: bytes  # f8, of rows
    spreads: bytes  # f8
    source_codes: bytes  # i4
    axis_keys: bytes  # u8, of each signature's axes, ascending, then by size
    axis_sizes: bytes  # i8
    axis_owners: bytes  # i4, indices of signatures
    encoded: bytes  # signatures that do not follow from their axes in MessagePack, one after the other
    encoded_ends: bytes  # i8


def index_of(rows: RowColumns) -> RowIndex:
    """The index of rows."""
    keys, first, work = np.unique(rows.keys, return_index=True, return_inverse=True)
    has_rows = np.bincount(work[rows.owners], minlength=len(keys)) > 0
    keys, first = keys[has_rows], first[has_rows]
    owners = (np.cumsum(has_rows) - 1)[work[rows.owners]]
    order = np.argsort(owners, kind="stable")
    signatures = [rows.signatures[index] for index in first.tolist()]
    encoded = [b"" if type(signature) in LINES else msgspec.msgpack.encode(signature) for signature in signatures]
    places = axis_columns(signatures)
    axis_order = np.lexsort((places.owners, places.sizes, places.keys))
    return RowIndex(
        rejected=rows.rejected,
        gpus=rows.gpus,
        sources=tuple(rows.sources),
        keys=keys.astype("<u8").tobytes(),
        row_ends=np.cumsum(np.bincount(owners, minlength=len(keys))).astype("<i8").tobytes(),
        durations_ns=rows.durations_ns[order].astype("<f8").tobytes(),
        spreads=rows.spreads[order].astype("<f8").tobytes(),
        source_codes=rows.source_codes[order].astype("<i4").tobytes(),
        axis_keys=places.keys[axis_order].astype("<u8").tobytes(),
        axis_sizes=places.sizes[axis_order].astype("<i8").tobytes(),
        axis_owners=places.owners[axis_order].astype("<i4").tobytes(),
        encoded=b"".join(encoded),
        encoded_ends=np.cumsum([len(text) for text in encoded], dtype="<i8").tobytes(),
    )


class IndexedLookups:
    """Lookups in an index (`presim.cost.measured.measured_estimator.Lookups`)."""

    def __init__(self, index: RowIndex, gpu: Gpu, analytic: AnalyticEstimator) -> None:
        self._gpu, self._analytic = gpu, analytic
        self._sources, self._encoded = index.sources, index.encoded
        self._keys, self._row_ends = np.frombuffer(index.keys, "<u8"), np.frombuffer(index.row_ends, "<i8")
        self._durations_ns, self._spreads = np.frombuffer(index.durations_ns), np.frombuffer(index.spreads)
        self._source_codes = np.frombuffer(index.source_codes, "<i4")
        self._axis_keys, self._axis_sizes = (
            np.frombuffer(index.axis_keys, "<u8"),
            np.frombuffer(index.axis_sizes, "<i8"),
        )
        self._axis_owners = np.frombuffer(index.axis_owners, "<i4")
        self._encoded_ends = np.frombuffer(index.encoded_ends, "<i8")
        self._points: dict[int, AxisPoint] = {}  # by their position in the axes' columns

    def exact(self, signature: Signature) -> tuple[float, float] | None:
        """Duration in ns and uncertainty; None if it was not measured."""
        key = keys_of([signature])[0]
        owner = int(np.searchsorted(self._keys, key))
        return self._median(owner, signature)[:2] if owner < len(self._keys) and self._keys[owner] == key else None

    def sizes_around(self, axis: Key, size: int) -> tuple[int, int] | None:
        """The nearest measured sizes on an axis; None if one is missing."""
        first, end = self._range(axis)
        at = self._place(first, end, size)
        return (int(self._axis_sizes[at - 1]), int(self._axis_sizes[at])) if first < at < end else None

    def points_around(self, axis: Key, size: int) -> tuple[AxisPoint, AxisPoint]:
        """The points at these sizes: the last of the smaller one and the first of the other."""
        first, end = self._range(axis)
        at = self._place(first, end, size)
        lower = self._place(first, end, int(self._axis_sizes[at - 1]))
        upper = self._place(first, end, int(self._axis_sizes[at]) + 1)
        points = [self._point(position, axis) for position in range(lower, upper)]
        return max(points[: at - lower]), min(points[at - lower :])

    def _range(self, axis: Key) -> tuple[int, int]:
        key = np.uint64(axis_key(axis))
        return int(np.searchsorted(self._axis_keys, key)), int(np.searchsorted(self._axis_keys, key, "right"))

    def _place(self, first: int, end: int, size: int) -> int:
        return first + int(np.searchsorted(self._axis_sizes[first:end], size))

    def _point(self, position: int, axis: Key) -> AxisPoint:
        if position not in self._points:
            owner, size = int(self._axis_owners[position]), int(self._axis_sizes[position])
            duration, doubt, base_ns = self._median(owner, self._signature(owner, size, axis))
            self._points[position] = AxisPoint(size, math.log(duration / base_ns), doubt)
        return self._points[position]

    def _signature(self, owner: int, size: int, axis: Key) -> Signature:
        """The signature of a size on an axis."""
        label, others = axis[0], typing.cast(Any, axis[1])
        for line in LINES.get(type(others), ()):
            if line.label == label:
                sized: Signature = msgspec.structs.replace(others, **dict.fromkeys(line.names, size))
                return sized
        start = int(self._encoded_ends[owner - 1]) if owner else 0
        union: Any = Signature
        signature: Signature = decode_messagepack(self._encoded[start : int(self._encoded_ends[owner])], union)
        return signature

    def _median(self, owner: int, signature: Signature) -> tuple[float, float, float]:
        """Duration in ns and uncertainty of a signature's rows, and its duration by the formula (0 if it has none)."""
        part = slice(int(self._row_ends[owner - 1]) if owner else 0, int(self._row_ends[owner]))
        sources = [self._sources[code] for code in self._source_codes[part]]
        timings = Timings(self._durations_ns[part].tolist(), self._spreads[part].tolist(), sources)
        bases = self._analytic.price([signature])
        slower = 1.0 if timings.all_at_work else slowdown_at_work(self._gpu, [signature], bases)[0]
        (base,) = bases
        duration, doubt = timings.median(slower, base is not None and base.bound == "compute")
        return duration, doubt, base.duration_ns if base else 0.0


def load(paths: Sequence[Path], gpu: Gpu) -> RowIndex | None:
    """The kept index of tables; None if there is none."""
    if sum(version(path)[1] for path in paths) < LEAST_BYTES:
        return None
    try:
        return decode_messagepack(read_bytes(_path(paths, gpu), "it is made again"), RowIndex)
    except (OSError, InputError, FormatError):
        return None


def save(paths: Sequence[Path], gpu: Gpu, index: RowIndex) -> None:
    """Keep the index of tables, where they are large; does nothing if it cannot be written."""
    if sum(version(path)[1] for path in paths) < LEAST_BYTES:
        return
    path = _path(paths, gpu)
    with contextlib.suppress(InputError, OSError):
        make_folder(path.parent)
        write_file(path, msgspec.msgpack.encode(index))
        kept_files = sorted(path.parent.iterdir(), key=lambda file: file.stat().st_mtime_ns)
        for file in kept_files[:-_MOST_FILES]:
            file.unlink()


def _path(paths: Sequence[Path], gpu: Gpu) -> Path:
    parts = [_sources(), repr(gpu), *(digest_of(path) for path in paths)]
    name = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return Path(platformdirs.user_cache_dir("presim")) / "prices" / name


@functools.cache
def _sources() -> str:
    """Identify the sources that make prices by the size and modification time of each file."""
    package = Path(__file__).parents[2]
    files = sorted(file for part in _PARTS for file in (package / part).rglob("*") if file.suffix != ".pyc")
    return repr([(str(file), version(file)) for file in files])
