"""Reports of Nsight Systems as a source: the SQLite export of one rank, or of all ranks of a node.

``nsys export --type sqlite report.nsys-rep`` writes the file. Its schema is described in Nsight Systems' user guide.
Kernels are known by name and launch dimensions; NVTX ranges named like steps ("step 12",
"iteration_12") delimit the steps. Graphs that were traced as a whole (``--cuda-graph-trace graph``) are kernels.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from presim.sources.device_events import check_single_gpu, event, profile_of
from presim.sources.kineto.events import Event, Profile
from presim.sources.kineto.profile_source import Kineto
from presim.sources.source import SourceRequest
from presim.system.files.sqlite import is_sqlite, read_table, table_names

_KERNELS, _CALLS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
_COPIES, _SETS = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
_GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_TIMES = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
_GRID, _BLOCK = ("gridX", "gridY", "gridZ"), ("blockX", "blockY", "blockZ")
_DIRECTIONS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}  # CUPTI's CUpti_ActivityMemcpyKind
_MIGRATIONS = (11, 12)  # of managed memory, in Nsight Systems' own numbers
_PINNED = 2  # CUPTI's CUpti_ActivityMemoryKind
_THREAD_BITS = 24  # of globalTid; the others are the process, as in globalPid
_VERSION = re.compile(r"_V\d+$")
_COMMAND = "nsys profile -t cuda,nvtx program"
_MIB = 2**20


@dataclasses.dataclass(frozen=True)
class _File:
    path: Path
    tables: Mapping[str, str]  # names in the file, by those without a version
    names: Mapping[int, str]

    def rows(self, table: str, columns: Sequence[str]) -> list[Mapping[str, Any]]:
        """Rows of a table; none if the file lacks it: tables are made with their first row."""
        return read_table(self.path, self.tables[table], columns) if table in self.tables else []


def open_nsys(paths: Sequence[Path], request: SourceRequest) -> Kineto | None:
    """Open SQLite exports of Nsight Systems; None if a file is none."""
    if not paths or not all(is_sqlite(path) and _CALLS in _tables(path) for path in paths):
        return None
    return Kineto(tuple(paths), request, "nsys", read)


def read(path: Path) -> list[Profile]:
    """The profiles of a file's ranks: one for each GPU that a process has for itself, in their order.

    Raises:
        InputError: a table is missing or damaged, or a process has work on several GPUs.
    """
    names = {row["id"]: row["value"] for row in read_table(path, "StringIds", ("id", "value"))}
    file = _File(path, _tables(path), names)
    migrations = [row for row in _copy_rows(file) if row["copyKind"] in _MIGRATIONS]
    work = [*_kernels(file), *_graphs(file), *_copies(file), *_sets(file)]
    gpus = sorted({item.number("device", 0) for item in work})
    processes = {gpu: {_process(item) for item in work if item.number("device", 0) == gpu} for gpu in gpus}
    pairs = [next(iter(process)) for process in processes.values() if len(process) == 1]
    if len(gpus) > 1 and len(set(pairs)) < len(gpus):
        check_single_gpu(path, set(gpus), "nsys profile for each rank")
    calls, ranges = _calls(file), _ranges(file)
    if len(gpus) < 2:
        device = _device(file, gpus[0] if gpus else 0)
        profile = profile_of(path, device, calls, work, (), ranges, _COMMAND)
        return [dataclasses.replace(profile, remarks=_migration_note(migrations))]
    profiles = []
    for rank, (gpu, process) in enumerate(zip(gpus, pairs, strict=True)):
        rank_events = [[item for item in items if _process(item) == process] for items in (calls, work, ranges)]
        profile = profile_of(path, _device(file, gpu), rank_events[0], rank_events[1], (), rank_events[2], _COMMAND)
        note = (f"{path.name} has work of {len(gpus)} GPUs: each counts as a rank, in their order.",)
        profiles.append(dataclasses.replace(profile, rank=rank, world_size=len(gpus), remarks=note))
    return profiles


def _tables(path: Path) -> dict[str, str]:
    return {_VERSION.sub("", name): name for name in sorted(table_names(path))}


def _process(item: Event) -> int:
    number = item.args.get("process", 0)
    return number if isinstance(number, int) else 0


def _kernels(file: _File) -> list[Event]:
    rows = file.rows(_KERNELS, (*_TIMES, *_GRID, *_BLOCK, "demangledName", "shortName"))
    return [
        event(
            file.names.get(row["demangledName"]) or file.names.get(row["shortName"], "?"), "kernel", 0, row["start"],
            row["end"], {**_place(row), "grid": [row[side] for side in _GRID], "block": [row[side] for side in _BLOCK]},
        )
        for row in rows
    ]  # fmt: skip


def _graphs(file: _File) -> list[Event]:
    rows = file.rows(_GRAPHS, (*_TIMES, "graphId"))
    return [
        event(f"CUDA graph {row['graphId']}", "kernel", 0, row["start"], row["end"], {
            **_place(row), "grid": [1, 1, 1], "block": [1, 1, 1],
        })
        for row in rows
    ]  # fmt: skip


def _copy_rows(file: _File) -> list[Mapping[str, Any]]:
    return file.rows(_COPIES, (*_TIMES, "bytes", "copyKind", "srcKind", "dstKind"))


def _copies(file: _File) -> list[Event]:
    copies = []
    for row in _copy_rows(file):
        if row["copyKind"] in _MIGRATIONS:
            continue
        direction = _DIRECTIONS.get(row["copyKind"], "DtoD")
        host_side = "Pinned" if _PINNED in (row["srcKind"], row["dstKind"]) else "Pageable"
        args = {**_place(row), "bytes": row["bytes"]}
        copies.append(event(f"Memcpy {direction} ({host_side})", "gpu_memcpy", 0, row["start"], row["end"], args))
    return copies


def _migration_note(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Pages of managed memory move when they are touched: no call launches them."""
    if not rows:
        return ()
    size = sum(row["bytes"] or 0 for row in rows) / _MIB
    return (
        f"{len(rows)} migrations of managed memory ({size:,.1f} MiB) are not replayed: what they delayed is in the "
        "times of kernels.",
    )


def _sets(file: _File) -> list[Event]:
    rows = file.rows(_SETS, (*_TIMES, "bytes"))
    return [
        event("Memset", "gpu_memset", 0, row["start"], row["end"], {**_place(row), "bytes": row["bytes"]})
        for row in rows
    ]


def _place(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "stream": row["streamId"], "correlation": row["correlationId"], "device": row["deviceId"],
        "process": (row["globalPid"] or 0) >> _THREAD_BITS,
    }  # fmt: skip


def _calls(file: _File) -> list[Event]:
    rows = read_table(file.path, file.tables[_CALLS], ("start", "end", "globalTid", "correlationId", "nameId"))
    return [
        event(_plain(file.names.get(row["nameId"], "?")), "cuda_runtime", row["globalTid"], row["start"], row["end"], {
            "correlation": row["correlationId"], "process": _of_thread(row),
        })
        for row in rows
    ]  # fmt: skip


def _of_thread(row: Mapping[str, Any]) -> int:
    thread = row["globalTid"]
    return thread >> _THREAD_BITS if isinstance(thread, int) else 0


def _plain(name: str) -> str:
    """A call without the version that CUPTI adds: cudaLaunchKernel_v7000."""
    return name.partition("_v")[0]


def _ranges(file: _File) -> list[Event]:
    rows = file.rows("NVTX_EVENTS", ("start", "end", "text", "textId", "globalTid"))
    return [
        event(
            row["text"] or file.names.get(row["textId"], ""), "nvtx", row["globalTid"], row["start"], row["end"],
            {"process": _of_thread(row)},
        )
        for row in rows
        if row["end"] is not None
    ]  # fmt: skip


def _device(file: _File, gpu: int) -> str:
    """The GPU's name; ``gpu``: its number in CUDA, which the table of GPUs may lack."""
    rows = file.rows("TARGET_INFO_GPU", ("name", "id", "cuDevice"))
    numbers = [row["id"] if row["cuDevice"] is None else row["cuDevice"] for row in rows]
    row = next((row for row, number in zip(rows, numbers) if number == gpu), rows[0] if rows else None)
    return str(row["name"]) if row is not None else ""
