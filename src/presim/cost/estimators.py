"""The estimators of operator prices: the user's tables and models (``--prices DIR``), plug-ins, and built-in ones."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path

from presim.cost.analytic.analytic_estimator import AnalyticEstimator
from presim.cost.learned.learned_estimator import PACKAGED, LearnedEstimator, models_in
from presim.cost.measured import row_columns, row_index, table
from presim.cost.measured.measured_estimator import MeasuredEstimator
from presim.cost.price import Estimator
from presim.errors import InputError
from presim.hardware import Gpu
from presim.system import plugins
from presim.system.files import version

GROUP = "presim.estimators"


def estimators(gpu: Gpu, folders: Sequence[Path] = ()) -> tuple[Estimator, ...]:
    """The estimators of operator prices, in order of priority: measured, plug-ins, learned, analytic.

    A plug-in registers a function of a GPU in the entry-point group ``presim.estimators``. It returns an `Estimator`,
    or None for an unknown GPU.

    Raises:
        InputError: a folder is missing or holds neither tables nor models, one of its files cannot be used, or a
        plug-in cannot be imported.
    """
    check(folders)
    priority_list: list[Estimator] = []
    measured = _measured(folders, gpu)
    if measured.estimator is not None:
        priority_list.append(measured.estimator)
    priority_list += [plugin for make in plugins.factories(GROUP).values() if (plugin := make(gpu)) is not None]
    return (*priority_list, LearnedEstimator(gpu, (PACKAGED, *folders)), AnalyticEstimator(gpu))


def holds_prices(folder: Path) -> bool:
    """Whether a folder exists and has tables or models."""
    return bool(table.find(folder) or models_in(folder))


def check(folders: Sequence[Path]) -> None:
    """Raise an `InputError` if a folder is missing or holds no prices."""
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"there is no folder {folder} with prices")
        if not holds_prices(folder):
            raise InputError(f"{folder} holds no prices: neither tables (*{table.SUFFIX}) nor models (KIND.GPU.json)")


@dataclasses.dataclass(frozen=True)
class _Measured:
    """What the tables of some folders say about one GPU."""

    estimator: MeasuredEstimator | None  # None: they have no row of it
    rejected: dict[str, int]
    gpus: tuple[str, ...]


def _measured(folders: Sequence[Path], gpu: Gpu) -> _Measured:
    """All tables of the folders as one, read again only if a file has changed."""
    return _read(tuple((path, version(path)) for folder in folders for path in table.find(folder)), gpu)


def of_tables(gpu: Gpu, folders: Sequence[Path]) -> MeasuredEstimator | None:
    """The estimator of the folders' tables; None if they have no row of the GPU."""
    return _measured(folders, gpu).estimator


@functools.lru_cache(maxsize=4)
def _read(files: tuple[tuple[Path, tuple[int, int]], ...], gpu: Gpu) -> _Measured:
    paths = [path for path, _ in files]
    index = row_index.load(paths, gpu)
    if index is None:
        index = row_index.index_of(row_columns.read(paths, gpu))
        row_index.save(paths, gpu, index)
    if not index.keys:
        return _Measured(None, index.rejected, index.gpus)
    lookups = row_index.IndexedLookups(index, gpu, AnalyticEstimator(gpu))
    return _Measured(MeasuredEstimator(gpu, lookups=lookups), index.rejected, index.gpus)


def versions(folders: Sequence[Path]) -> tuple[tuple[Path, tuple[int, int]], ...]:
    """The folders' files and their versions."""
    return tuple((path, version(path)) for folder in folders for path in (*table.find(folder), *models_in(folder)))


def notes(gpu: Gpu, folders: Sequence[Path]) -> tuple[str, ...]:
    """Notes for a result about the tables in use."""
    read = _measured(folders, gpu)
    sentences = [f"{count} rows of measured prices were left out: {reason}." for reason, count in read.rejected.items()]
    if read.gpus and gpu.id not in read.gpus:
        sentences.append(f"No row of the measured prices is of {gpu.id}; they are of {', '.join(read.gpus)}.")
    return tuple(sentences)
