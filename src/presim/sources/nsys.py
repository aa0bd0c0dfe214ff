"""Reports of Nsight Systems as a source: the SQLite export, one file for each rank.

``nsys export --type sqlite report.nsys-rep`` writes the file. Its schema is described in Nsight Systems' user guide.
Kernels are known by name and launch dimensions; NVTX ranges named like steps ("step 12",
"iteration_12") delimit the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from presim.sources.device_events import check_single_gpu, event, profile_of
from presim.sources.kineto.events import Event, Profile
from presim.sources.kineto.profile_source import Kineto
from presim.sources.source import SourceRequest
from presim.system.files.sqlite import is_sqlite, read_table, table_names

_KERNELS, _CALLS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
_COPIES, _SETS = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
_TIMES = ("start", "end", "deviceId", "streamId", "correlationId")
_GRID, _BLOCK = ("gridX", "gridY", "gridZ"), ("blockX", "blockY", "blockZ")
_DIRECTIONS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}  # CUPTI's CUpti_ActivityMemcpyKind
_PINNED = 2  # CUPTI's CUpti_ActivityMemoryKind


def open_nsys(paths: Sequence[Path], request: SourceRequest) -> Kineto | None:
    """Open SQLite exports of Nsight Systems; None if a file is none."""
    if not paths or not all(is_sqlite(path) and _CALLS in table_names(path) for path in paths):
        return None
    return Kineto(tuple(paths), request, "nsys", read)


def read(path: Path) -> Profile:
    """One rank's profile.

    Raises:
        InputError: a table is missing or damaged, or the file has the work of several GPUs.
    """
    tables = table_names(path)
    names = {row["id"]: row["value"] for row in read_table(path, "StringIds", ("id", "value"))}
    work = [*_kernels(path, names)] if _KERNELS in tables else []
    work += (
        [_copy(row) for row in read_table(path, _COPIES, (*_TIMES, "bytes", "copyKind", "srcKind", "dstKind"))]
        if (_COPIES in tables)
        else []
    )
    work += [_set(row) for row in read_table(path, _SETS, (*_TIMES, "bytes"))] if _SETS in tables else []
    check_single_gpu(path, {item.number("device", 0) for item in work}, "nsys profile for each rank")
    calls = [
        event(_plain(names.get(row["nameId"], "?")), "cuda_runtime", row["globalTid"], row["start"], row["end"], {
            "correlation": row["correlationId"],
        })
        for row in read_table(path, _CALLS, ("start", "end", "globalTid", "correlationId", "nameId"))
    ]  # fmt: skip
    device = (
        [row["name"] for row in read_table(path, "TARGET_INFO_GPU", ("name",))] if "TARGET_INFO_GPU" in tables else []
    )
    ranges = _ranges(path, names) if "NVTX_EVENTS" in tables else []
    return profile_of(path, str(device[0]) if device else "", calls, work, (), ranges)


def _kernels(path: Path, names: dict[int, str]) -> list[Event]:
    rows = read_table(path, _KERNELS, (*_TIMES, *_GRID, *_BLOCK, "demangledName", "shortName"))
    return [
        event(
            names.get(row["demangledName"]) or names.get(row["shortName"], "?"), "kernel", 0, row["start"], row["end"],
            {**_place(row), "grid": [row[side] for side in _GRID], "block": [row[side] for side in _BLOCK]},
        )
        for row in rows
    ]  # fmt: skip


def _copy(row: Any) -> Event:
    direction = _DIRECTIONS.get(row["copyKind"], "DtoD")
    host_side = "Pinned" if _PINNED in (row["srcKind"], row["dstKind"]) else "Pageable"
    name = f"Memcpy {direction} ({host_side})"
    return event(name, "gpu_memcpy", 0, row["start"], row["end"], {**_place(row), "bytes": row["bytes"]})


def _set(row: Any) -> Event:
    return event("Memset", "gpu_memset", 0, row["start"], row["end"], {**_place(row), "bytes": row["bytes"]})


def _place(row: Any) -> dict[str, Any]:
    return {"stream": row["streamId"], "correlation": row["correlationId"], "device": row["deviceId"]}


def _plain(name: str) -> str:
    """A call without the version that CUPTI adds: cudaLaunchKernel_v7000."""
    return name.partition("_v")[0]


def _ranges(path: Path, names: dict[int, str]) -> list[Event]:
    rows = read_table(path, "NVTX_EVENTS", ("start", "end", "text", "textId", "globalTid"))
    return [
        event(row["text"] or names.get(row["textId"], ""), "nvtx", row["globalTid"], row["start"], row["end"], {})
        for row in rows
        if row["end"] is not None
    ]
