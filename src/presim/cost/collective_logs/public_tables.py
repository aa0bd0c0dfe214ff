"""Public tables of collectives, read like nccl-tests logs: aiconfigurator, vTrain, vidur and Frontier.

Facts that a table lacks come from its folder names, in these datasets' layout.
"""

from __future__ import annotations

import collections
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from presim.cost.collective_logs import nccl_tests
from presim.cost.collective_logs.nccl_tests import Log
from presim.cost.measured.importers import aiconfigurator
from presim.cost.measured.importers.import_tables import Row, csv_rows, number, parquet_rows, positive_integers
from presim.errors import InputError
from presim.system.files import read_text

_COLUMNS = ("device", "op_name", "nccl_dtype", "num_gpus", "message_size", "latency")
_HALF_BYTES = 2  # aiconfigurator counts elements; its int8 rows repeat the same byte sizes
_LOOK_UP = re.compile(r"AR_GPU(\d+)_\w+_LUT")
_STEP = 1.4  # sizes closer than this factor are redundant
_EVENTS_SHOW = 1 << 20  # bytes below which vidur's event timing adds a significant few us
_INCOMPLETE = "a missing number of ranks, size or time"
_CLOSE = "a size close to another one"

_Series = tuple[str, int, int, str]  # kind, ranks, nodes, GPU
_Time = tuple[_Series, int, float]  # bytes, us


def logs(path: Path) -> list[Log]:
    """All series of a table, or of the tables and logs (*.log) in a folder; any other file is read as a log.

    Raises:
        InputError: no table or log is found, or a file cannot be read.
    """
    if not path.is_dir():
        reader = _reader_of(path)
        return _series(path, reader(path)) if reader else [nccl_tests.read(path)]
    files = [file for file in sorted(path.rglob("*")) if file.is_file() and (_reader_of(file) or file.suffix == ".log")]
    if not files:
        raise InputError(
            f"{path} holds no table of collectives (aiconfigurator's nccl_perf.parquet, vTrain's AR_GPU…_LUT, vidur's "
            "all_reduce.csv and send_recv.csv) and no *.log; give logs of nccl-tests or such a folder"
        )
    return [log for file in files for log in logs(file)]


_Reader = Callable[[Path], Iterator[_Time | str]]


def _reader_of(path: Path) -> _Reader | None:
    if path.name == "nccl_perf.parquet":
        return _aiconfigurator
    if path.name in ("all_reduce.csv", "send_recv.csv"):
        return _vidur
    return _vtrain if _LOOK_UP.fullmatch(path.name) else None


def _aiconfigurator(path: Path) -> Iterator[_Time | str]:
    """Within a node; latency in ms. Older tables name the GPU only by folder: GPU/comm/nccl/VERSION."""
    folder = next((gpu for parent in path.parents if (gpu := aiconfigurator.gpu_of(parent.name))), "")
    for row in parquet_rows(path, _COLUMNS):
        sizes, latency, gpu = (
            positive_integers(row, "num_gpus", "message_size"),
            number(row, "latency"),
            folder or row["device"],
        )
        if sizes is None or latency is None or not gpu:
            yield _INCOMPLETE
        elif row["nccl_dtype"] == "half":
            kind = str(row["op_name"]).replace("alltoall", "all_to_all")
            yield (kind, sizes[0], 1, gpu), _HALF_BYTES * sizes[1], latency * 1e3


def _vidur(path: Path) -> Iterator[_Time | str]:
    """Also Frontier's; medians in ms."""
    for row in csv_rows(path):
        sizes, latency = positive_integers(row, "num_workers", "devices_per_node", "size"), _median(row, path.stem)
        if sizes is None or latency is None or sizes[0] % sizes[1]:
            yield _INCOMPLETE
        elif sizes[2] < _EVENTS_SHOW:
            yield "below 1 MiB, where event timing distorts"
        else:
            gpu = path.parent.name.split("_")[0]
            yield (path.stem, sizes[0], sizes[0] // sizes[1], gpu), sizes[2], latency * 1e3


def _median(row: Row, kind: str) -> float | None:
    return number(row, f"time_stats.{kind}.median")


def _vtrain(path: Path) -> Iterator[_Time | str]:
    """All-reduce within a DGX; ns. The first column of each name is out of place."""
    named = _LOOK_UP.fullmatch(path.name)
    ranks = int(named[1]) if named else 0
    for line in read_text(path, "copy it again").splitlines()[1:]:
        cells = line.split(",")
        row = dict(zip(("size", "count", "type", "time"), cells))
        sizes, latency = positive_integers(row, "size"), number(row, "time")
        if sizes is None or latency is None:
            yield _INCOMPLETE
        else:
            yield ("all_reduce", ranks, 1, path.parent.name), sizes[0], latency / 1e3


def _series(path: Path, rows: Iterator[_Time | str]) -> list[Log]:
    """One log per series. The first one carries the table's rejected rows."""
    rejected = collections.Counter[str]()
    times: dict[_Series, dict[int, list[float]]] = {}
    for row in rows:
        if isinstance(row, str):
            rejected[row] += 1
        elif not row[2] > 0:
            rejected["no bytes or no time"] += 1
        else:
            times.setdefault(row[0], {}).setdefault(row[1], []).append(row[2])
    if not times:
        why = "; ".join(f"{count}: {reason}" for reason, count in sorted(rejected.items()))
        raise InputError(f"{path}: no row can be used: {why or 'the table is empty'}")
    series_logs = []
    for (kind, ranks, nodes, gpu), by_size in sorted(times.items()):
        spaced_sizes = _spaced(sorted(by_size))
        rejected[_CLOSE] += len(by_size) - len(spaced_sizes)
        measured = tuple((size, statistics.median(by_size[size])) for size in spaced_sizes)
        series_logs.append(Log(path, kind, ranks, nodes, gpu, measured, dict(+rejected)))
        rejected.clear()
    return series_logs


def _spaced(sizes: Sequence[int]) -> list[int]:
    """Ascending sizes at least one step apart, and the largest."""
    spaced_sizes: list[int] = []
    for size in sizes:
        if not spaced_sizes or size >= _STEP * spaced_sizes[-1]:
            spaced_sizes.append(size)
    return spaced_sizes if spaced_sizes[-1] == sizes[-1] else [*spaced_sizes, sizes[-1]]
