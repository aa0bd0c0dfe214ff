"""A GPU's measured prices in columns on disk, so that large tables are read and indexed once.

A file's name is a digest of the tables' content, of the GPU's figures and of presim's sources that make prices. It has
the digests of signatures and axes in ascending order with what belongs to them, and is written under a temporary name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import platformdirs
from numpy.typing import NDArray

from presim.cost.measured.measured_estimator import AxisPoint, MeasuredEstimator
from presim.cost.measured.table import Table
from presim.errors import InputError
from presim.hardware import Gpu
from presim.system.files import FormatError, decode_messagepack, digest_of, make_folder, read_bytes, version, write_file
from presim.trace.signatures import Signature

LEAST_BYTES = 50_000  # of all tables: smaller ones have at most some thousand rows
_PARTS = ("cost", "hardware", "constants", "trace", "files")  # of presim's sources
_MOST_FILES = 32  # kept; the oldest are deleted


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """Prices of one GPU; numbers as bytes of little-endian 64-bit columns."""

    rejected: dict[str, int]  # rows by reason
    gpus: tuple[str, ...]  # catalogue GPUs that the tables have rows of
    digests: bytes  # of signatures, ascending
    durations: bytes
    doubts: bytes
    axis_digests: bytes  # of axes, ascending
    point_ends: bytes  # of the points of each axis
    sizes: bytes
    log_ratios: bytes
    point_doubts: bytes


@dataclasses.dataclass(frozen=True)
class _Exact:
    """Duration and doubt by signature, as a dictionary."""

    digests: NDArray[np.uint64]
    durations: NDArray[np.float64]
    doubts: NDArray[np.float64]

    def get(self, signature: Signature) -> tuple[float, float] | None:
        """Duration in ns and uncertainty; None if it was not measured."""
        index = _find(self.digests, signature)
        return None if index is None else (float(self.durations[index]), float(self.doubts[index]))


@dataclasses.dataclass(frozen=True)
class _Lines:
    """Points by axis, as a dictionary."""

    axes: NDArray[np.uint64]
    point_ends: NDArray[np.int64]
    sizes: NDArray[np.int64]
    log_ratios: NDArray[np.float64]
    doubts: NDArray[np.float64]

    def get(self, axis: object, default: Sequence[AxisPoint]) -> Sequence[AxisPoint]:
        """The points along an axis, ascending."""
        index = _find(self.axes, axis)
        if index is None:
            return default
        part = slice(int(self.point_ends[index - 1]) if index else 0, int(self.point_ends[index]))
        columns = (self.sizes[part].tolist(), self.log_ratios[part].tolist(), self.doubts[part].tolist())
        return [AxisPoint(*values) for values in zip(*columns)]


def load(paths: Sequence[Path], gpu: Gpu) -> Columns | None:
    """The kept columns of tables; None if there are none."""
    if sum(version(path)[1] for path in paths) < LEAST_BYTES:
        return None
    try:
        return decode_messagepack(read_bytes(_path(paths, gpu), "it is made again"), Columns)
    except (OSError, InputError, FormatError):
        return None


def save(paths: Sequence[Path], gpu: Gpu, estimator: MeasuredEstimator, table: Table) -> None:
    """Keep the prices of tables, where they are large; does nothing if they cannot be written."""
    if sum(version(path)[1] for path in paths) < LEAST_BYTES:
        return
    path = _path(paths, gpu)
    with contextlib.suppress(InputError, OSError):
        make_folder(path.parent)
        write_file(path, msgspec.msgpack.encode(columns_of(estimator, table)))
        kept_files = sorted(path.parent.iterdir(), key=lambda file: file.stat().st_mtime_ns)
        for file in kept_files[:-_MOST_FILES]:
            file.unlink()


def columns_of(estimator: MeasuredEstimator, table: Table) -> Columns:
    """The columns of an estimator that was made of a table's rows."""
    exact = sorted((_digest(signature), *price) for signature, price in estimator.measured.items())
    lines = sorted((_digest(axis), points) for axis, points in estimator.points_by_axis.items())
    points = [point for _, line in lines for point in line]
    return Columns(
        rejected=table.rejected,
        gpus=table.gpus,
        digests=np.array([row[0] for row in exact], "<u8").tobytes(),
        durations=np.array([row[1] for row in exact], "<f8").tobytes(),
        doubts=np.array([row[2] for row in exact], "<f8").tobytes(),
        axis_digests=np.array([digest for digest, _ in lines], "<u8").tobytes(),
        point_ends=np.cumsum([len(line) for _, line in lines], dtype="<i8").tobytes(),
        sizes=np.array([point.size for point in points], "<i8").tobytes(),
        log_ratios=np.array([point.log_ratio for point in points], "<f8").tobytes(),
        point_doubts=np.array([point.doubt for point in points], "<f8").tobytes(),
    )


def estimator_of(columns: Columns, gpu: Gpu) -> MeasuredEstimator:
    """The estimator that columns were made of."""
    exact = _Exact(
        np.frombuffer(columns.digests, "<u8"),
        np.frombuffer(columns.durations, "<f8"),
        np.frombuffer(columns.doubts, "<f8"),
    )
    lines = _Lines(
        np.frombuffer(columns.axis_digests, "<u8"),
        np.frombuffer(columns.point_ends, "<i8"),
        np.frombuffer(columns.sizes, "<i8"),
        np.frombuffer(columns.log_ratios, "<f8"),
        np.frombuffer(columns.point_doubts, "<f8"),
    )
    return MeasuredEstimator.of_lookups(gpu, exact, lines)


def _digest(content: object) -> int:
    """64 bits that tell signatures and axes apart: of 200,000, two are equal with a probability of 1e-9."""
    return int.from_bytes(hashlib.blake2b(msgspec.msgpack.encode(content), digest_size=8).digest(), "big")


def _find(digests: NDArray[np.uint64], content: object) -> int | None:
    digest = np.uint64(_digest(content))
    index = int(np.searchsorted(digests, digest))
    return index if index < len(digests) and digests[index] == digest else None


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
