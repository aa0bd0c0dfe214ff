"""Nsight Compute's tables: the duration of single kernels by name and size of launch.

``ncu --csv --page raw`` writes them: a header, a row of units, a row for each profiled launch. Rows have no shapes, so
they price work of which a capture knows no more either (`Kernel`): kernels of extensions, and Triton's. Names of
kernels are as ``--print-kernel-base mangled`` writes them, since a capture sees those.
"""

from __future__ import annotations

import collections
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

from presim.cost.measured.importers.import_tables import Row, csv_rows, number
from presim.cost.measured.measured_rows import Measurement
from presim.hardware import catalogue
from presim.system.files import FormatError, decode_csv, read_text
from presim.trace.signatures import Kernel

_NAME, _GRID, _BLOCK = "Kernel Name", "Grid Size", "Block Size"
_DURATION, _GPU = "gpu__time_duration.sum", "device__attribute_display_name"
_UNIT_NS = {"ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9}
_ONE_SAMPLE_SPREAD = 0.1  # nothing is known of a launch that was profiled once
_SIDES = re.compile(r"\(?\s*(\d{1,10})\s*,\s*(\d{1,10})\s*,\s*(\d{1,10})\s*\)?")


def recognises(root: Path) -> bool:
    """Whether a path is such a table."""
    return bool(files(root))


def files(root: Path) -> list[Path]:
    """The table itself."""
    if not root.is_file() or root.suffix != ".csv":
        return []
    try:
        next(
            decode_csv(read_text(root, "check its permissions", errors="replace"), [_NAME, _GRID, _BLOCK, _DURATION]),
            None,
        )
    except FormatError:
        return []
    return [root]


def read(root: Path, limit: int = 0) -> Iterator[Measurement | str]:
    """The median of each kernel and size of launch; ``limit`` is ignored."""
    for path in files(root):
        yield from _rows(path)


def _rows(path: Path) -> Iterator[Measurement | str]:
    rows = csv_rows(path)
    units = next(rows, {})
    unit_ns = _UNIT_NS.get(str(units.get(_DURATION, "")))
    if unit_ns is None or units.get(_NAME):
        yield f"a table without the row of units below its header: {path.name}"
        return
    times: dict[tuple[str, Kernel], list[float]] = collections.defaultdict(list)
    for row in rows:
        launch = _launch(row)
        if isinstance(launch, str):
            yield launch
            continue
        duration = number({_DURATION: str(row[_DURATION]).replace(",", "")}, _DURATION)
        if duration is None or duration <= 0:
            yield f"{_DURATION} is not a positive number"
        else:
            times[launch].append(duration * unit_ns)
    for (gpu, kernel), durations_ns in times.items():
        middle = statistics.median(durations_ns)
        spread = (max(durations_ns) - min(durations_ns)) / 2 / middle if len(durations_ns) > 1 else _ONE_SAMPLE_SPREAD
        yield Measurement(
            gpu=gpu, signature=kernel, duration_ns=middle, source="ncu", spread=spread, samples=len(durations_ns)
        )


def _launch(row: Row) -> tuple[str, Kernel] | str:
    """GPU and kernel of a row, or why it cannot be used."""
    name = row.get(_GPU, "")
    if not name:
        return f"a launch without its GPU's name: profile with --metrics {_DURATION},{_GPU}"
    gpu = next((gpu.id for gpu in catalogue.gpus() if gpu.name == name), None)
    if gpu is None:
        return f"a GPU that the catalogue does not have: {name}"
    grid, block = (_SIDES.fullmatch(str(row[column]).strip()) for column in (_GRID, _BLOCK))
    if not row[_NAME] or grid is None or block is None:
        return f"{_NAME}, {_GRID} or {_BLOCK} that are not read"
    grid_sides, block_sides = ((int(side[1]), int(side[2]), int(side[3])) for side in (grid, block))
    return gpu, Kernel(str(row[_NAME]), grid_sides, block_sides)
