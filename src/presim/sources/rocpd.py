"""Databases of ROCm's rocprofv3 (rocpd) as a source, one file for each rank.

``rocprofv3 --output-format rocpd --kernel-trace --memory-copy-trace --hip-runtime-trace -- program`` writes the file.
Tables are read by the views without the database's id in their name, or by the one table that has it. A kernel
belongs to the API call with the same place on the call stack (``stack_id``). Newer files have times and places (thread,
GPU, queue, stream) in tables of their own, to which rows refer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from presim.errors import InputError
from presim.sources.device_events import check_single_gpu, event, profile_of
from presim.sources.kineto.events import Event, Profile
from presim.sources.kineto.profile_source import Kineto
from presim.sources.source import SourceRequest
from presim.system.files.sqlite import is_sqlite, read_table, table_names

_COMMAND = "rocprofv3 --output-format rocpd --kernel-trace --memory-copy-trace --hip-runtime-trace -- program"
_DISPATCH = "rocpd_kernel_dispatch"
_DIRECTIONS = {"HOST_TO_DEVICE": "HtoD", "DEVICE_TO_HOST": "DtoH", "DEVICE_TO_DEVICE": "DtoD"}
_PLACES = ("tid", "agent_id", "queue_id", "stream_id")
_SIDES = ("x", "y", "z")


def open_rocpd(paths: Sequence[Path], request: SourceRequest) -> Kineto | None:
    """Open databases of rocprofv3; None if a file is none."""
    if not paths or not all(
        is_sqlite(path) and any(name.startswith(_DISPATCH) for name in table_names(path)) for path in paths
    ):
        return None
    return Kineto(tuple(paths), request, "rocpd", read)


def read(path: Path) -> Profile:
    """One rank's profile.

    Raises:
        InputError: a table is missing or damaged, or the file has the work of several GPUs.
    """
    tables = table_names(path)
    strings = {row["id"]: row["string"] for row in _rows(path, tables, "rocpd_string", ("id", "string"))}
    stacks = {row["id"]: row["stack_id"] for row in _rows(path, tables, "rocpd_event", ("id", "stack_id"))}
    regions = [
        event(strings.get(row["name_id"], "?"), "hip_runtime", row["tid"], row["start"], row["end"], {
            "correlation": stacks.get(row["event_id"], -1),
        })
        for row in _timed_rows(path, tables, "rocpd_region", ("name_id", "tid", "start", "end", "event_id"))
    ]  # fmt: skip
    calls = [region for region in regions if region.name.startswith(("hip", "hsa"))]
    ranges = [region for region in regions if not region.name.startswith(("hip", "hsa"))]
    work = [*_kernels(path, tables, stacks), *_copies(path, tables, strings, stacks)]
    check_single_gpu(
        path, {item.number("device", 0) for item in work if item.cat == "kernel"}, "rocprofv3 for each rank"
    )
    return profile_of(path, _device(path, tables), calls, work, (), ranges, _COMMAND)


def _kernels(path: Path, tables: set[str], stacks: Mapping[int, int]) -> list[Event]:
    symbols = _rows(path, tables, "rocpd_info_kernel_symbol", ("id", "display_name", "kernel_name"))
    names = {row["id"]: row["display_name"] or row["kernel_name"] or "?" for row in symbols}
    sizes = [f"{kind}_size_{side}" for kind in ("grid", "workgroup") for side in _SIDES]
    columns = ("kernel_id", "agent_id", "stream_id", "queue_id", "start", "end", "event_id", *sizes)
    kernels = []
    for row in _timed_rows(path, tables, _DISPATCH, columns):
        block = [row[f"workgroup_size_{side}"] or 1 for side in _SIDES]
        grid = [max(1, (row[f"grid_size_{side}"] or 1) // size) for side, size in zip(_SIDES, block)]  # of work items
        args = {**_place(row, stacks), "grid": grid, "block": block, "device": row["agent_id"]}
        kernels.append(event(names.get(row["kernel_id"], "?"), "kernel", 0, row["start"], row["end"], args))
    return kernels


def _copies(path: Path, tables: set[str], strings: Mapping[int, str], stacks: Mapping[int, int]) -> list[Event]:
    if not any(name.startswith("rocpd_memory_copy") for name in tables):
        return []
    columns = ("name_id", "stream_id", "queue_id", "start", "end", "size", "event_id")
    copies = []
    for row in _timed_rows(path, tables, "rocpd_memory_copy", columns):
        words = strings.get(row["name_id"], "")
        direction = next((short for word, short in _DIRECTIONS.items() if word in words), "DtoD")
        args = {**_place(row, stacks), "bytes": row["size"]}
        copies.append(event(f"Memcpy {direction}", "gpu_memcpy", 0, row["start"], row["end"], args))
    return copies


def _place(row: Mapping[str, Any], stacks: Mapping[int, int]) -> dict[str, Any]:
    stream = row["stream_id"] if row["stream_id"] is not None else row["queue_id"] or 0
    return {"stream": stream, "correlation": stacks.get(row["event_id"], -1)}


def _device(path: Path, tables: set[str]) -> str:
    rows = _rows(path, tables, "rocpd_info_agent", ("type", "product_name", "name"), required=False)
    return next((str(row["product_name"] or row["name"]) for row in rows if row["type"] == "GPU"), "")


def _timed_rows(path: Path, tables: set[str], name: str, columns: Sequence[str]) -> list[Mapping[str, Any]]:
    """Rows with their times and places, which newer files have in tables of their own.

    Raises:
        InputError: a row refers to a time or a place that is not there.
    """
    rows = _rows(path, tables, name, (*columns, "track_id", "start_id", "end_id"))
    if all(row["start_id"] is None for row in rows):
        return rows
    times = {row["id"]: row["value"] for row in _rows(path, tables, "rocpd_timestamp", ("id", "value"))}
    tracks = {row["id"]: row for row in _rows(path, tables, "rocpd_track", ("id", *_PLACES))}
    try:
        return [
            {
                **row,
                **{column: tracks[row["track_id"]][column] for column in _PLACES},
                "start": times[row["start_id"]],
                "end": times[row["end_id"]],
            }
            for row in rows
        ]
    except KeyError as error:
        raise InputError(
            f"{path}: a row of {name} refers to the time or track {error}, which it does not have; copy it again"
        ) from error


def _rows(
    path: Path, tables: set[str], name: str, columns: Sequence[str], *, required: bool = True
) -> list[Mapping[str, Any]]:
    """Rows of the view, or of the one table of that name with the database's id."""
    matches = [name] if name in tables else sorted(table for table in tables if table.startswith(f"{name}_"))
    matches = [table for table in matches if name != "rocpd_event" or not table.startswith("rocpd_event_arg")]
    if not matches and not required:
        return []
    if len(matches) != 1:
        raise InputError(f"{path} has {len(matches)} tables {name}; give the database of one run of rocprofv3")
    return read_table(path, matches[0], columns)
