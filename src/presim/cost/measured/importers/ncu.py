"""Nsight Compute's tables: the duration of single kernels by name and size of launch.

``ncu --csv --page raw`` writes a header, a row of units, and a row for each profiled launch; ``ncu --csv`` a row for
each launch and metric, with its unit. What the program and ncu print around them (``==PROF== …``) is passed over.
Rows have no shapes, so they price work of which a capture knows no more either (`Kernel`): kernels of extensions, and
Triton's. Names of kernels are as ``--print-kernel-base mangled`` writes them, since a capture sees those.
"""

from __future__ import annotations

import collections
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

from presim.cost.measured.importers.import_tables import Row
from presim.cost.measured.measured_rows import Measurement
from presim.errors import InputError
from presim.hardware import catalogue
from presim.system.files import FormatError, decode_csv, read_text
from presim.trace.signatures import Kernel

_NAME, _GRID, _BLOCK = "Kernel Name", "Grid Size", "Block Size"
_DURATION, _GPU = "gpu__time_duration.sum", "device__attribute_display_name"
_UNIT_NS = {"ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9}
_METRIC, _UNIT, _VALUE = "Metric Name", "Metric Unit", "Metric Value"
_DURATIONS = (_DURATION, "Duration")  # the latter in sections such as SpeedOfLight
_GROUPS = {",": re.compile(r"\d{1,3}(,\d{3})+"), ".": re.compile(r"\d{1,3}(\.\d{3})+")}
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
        text = _table_text(root)
        header = next(iter(decode_csv(f"{text.partition(chr(10))[0]}\n-", [_NAME, _GRID, _BLOCK])), {})
    except FormatError:
        return []
    return [root] if _DURATION in header or _VALUE in header else []


def _table_text(path: Path) -> str:
    """The table within what ncu printed: from its header on, without its own lines."""
    lines = read_text(path, "check its permissions", errors="replace").splitlines()
    start = next((index for index, line in enumerate(lines) if f'"{_NAME}"' in line), 0)
    return "\n".join(line for line in lines[start:] if not line.startswith("=="))


def read(root: Path, limit: int = 0) -> Iterator[Measurement | str]:
    """The median of each kernel and size of launch; ``limit`` is ignored."""
    for path in files(root):
        yield from _rows(path)


def _rows(path: Path) -> Iterator[Measurement | str]:
    times: dict[tuple[str, Kernel], list[float]] = collections.defaultdict(list)
    for row in _launch_rows(path):
        if isinstance(row, str):
            yield row
            continue
        launch = _launch(row)
        if isinstance(launch, str):
            yield launch
            continue
        unit_ns = _UNIT_NS.get(str(row[_UNIT]))
        duration = _decimal(str(row[_DURATION]), is_whole=unit_ns == 1)
        if unit_ns is None or duration is None or duration <= 0:
            yield f"{_DURATION} is not a positive number"
        else:
            times[launch].append(duration * unit_ns)
    for (gpu, kernel), durations_ns in times.items():
        middle = statistics.median(durations_ns)
        spread = (max(durations_ns) - min(durations_ns)) / 2 / middle if len(durations_ns) > 1 else _ONE_SAMPLE_SPREAD
        yield Measurement(
            gpu=gpu, signature=kernel, duration_ns=middle, source="ncu", spread=spread, samples=len(durations_ns)
        )


def _launch_rows(path: Path) -> Iterator[Row | str]:
    """A row for each launch, with its duration and the unit of it; or why there is none."""
    try:
        rows = list(decode_csv(_table_text(path)))
    except FormatError as error:
        raise InputError(f"{path} cannot be read as CSV: {error}; copy it again") from error
    if rows and _METRIC in rows[0]:
        yield from _metric_rows(rows)
        return
    units: Row = dict(rows[0]) if rows else {}
    if units.get(_NAME) or units.get(_DURATION) not in _UNIT_NS:
        yield f"a table without the row of units below its header: {path.name}"
        return
    yield from ({**row, _UNIT: units[_DURATION]} for row in rows[1:])


def _metric_rows(rows: list[dict[str, str]]) -> Iterator[Row | str]:
    """Launches of a table that has a row for each metric: those with a duration."""
    launches: dict[tuple[str, str], Row] = {}
    for row in rows:
        launch = launches.setdefault((row.get("Process ID", ""), row.get("ID", "")), {**row, _GPU: ""})
        if row[_METRIC] in _DURATIONS:
            launch |= {_DURATION: row[_VALUE], _UNIT: row[_UNIT]}
        elif row[_METRIC] == _GPU:
            launch[_GPU] = row[_VALUE]
    for launch in launches.values():
        yield launch if _DURATION in launch else f"a launch without its duration: profile with --metrics {_DURATION}"


def _decimal(text: str, *, is_whole: bool) -> float | None:
    """A number in ncu's locale: 1,234.5 or 1.234,5. ``is_whole``: of nanoseconds, which have no fraction."""
    marks = [mark for mark in text if mark in ",."]
    has_groups = bool(marks) and _GROUPS[marks[0]].fullmatch(text) is not None
    is_grouped = has_groups and (len(marks) > 1 or is_whole or marks[0] == ",")
    thousands = marks[0] if len(set(marks)) == 2 or is_grouped else ""
    digits = text.replace(thousands, "") if thousands else text
    try:
        return float(digits.replace(",", "."))
    except ValueError:
        return None


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
