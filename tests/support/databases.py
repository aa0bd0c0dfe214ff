"""Recordings of other profilers with the events of a profile of PyTorch's, in the schemas that their tools write."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_CALLS = ("cuda_runtime", "cuda_driver")
_KINDS = {"HtoD": 1, "DtoH": 2, "DtoD": 8}


def _by_category(body: dict[str, Any]) -> tuple[list[Any], list[Any], list[Any]]:
    events = [event for event in body["traceEvents"] if event.get("ph") == "X"]
    work = [event for event in events if event["cat"] in _DEVICE]
    calls = [event for event in events if event["cat"] in _CALLS]
    steps = [
        event for event in events if event["name"].startswith("ProfilerStep#") and event["cat"] == "user_annotation"
    ]
    return work, calls, steps


def _ns(event: dict[str, Any]) -> tuple[int, int]:
    start = round(event["ts"] * 1000) + 10**12
    return start, start + round(event["dur"] * 1000)


def _write(path: Path, tables: dict[str, tuple[str, Sequence[Sequence[Any]]]]) -> Path:
    with sqlite3.connect(path) as connection:
        for name, (columns, rows) in tables.items():
            connection.execute(f'CREATE TABLE "{name}" ({columns})')
            marks = ", ".join("?" for _ in columns.split(","))
            connection.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)
    connection.close()
    return path


def nsys(path: Path, body: dict[str, Any], device: str = "NVIDIA H100 80GB HBM3", gpu: int = 0) -> Path:
    """As `nsys export --type sqlite` writes it."""
    return nsys_of_node(path, {gpu: body}, device)


def nsys_of_node(path: Path, bodies: dict[int, dict[str, Any]], device: str = "NVIDIA H100 80GB HBM3") -> Path:
    """As `nsys` writes what it recorded of several processes, each with a GPU of its own (the keys)."""
    names: dict[str, int] = {}
    tables: dict[str, list[tuple[Any, ...]]] = {"KERNEL": [], "MEMCPY": [], "MEMSET": [], "RUNTIME": [], "NVTX": []}
    for gpu, body in bodies.items():
        _add_rank(tables, names, body, gpu, (gpu + 1) << 24)
    place = "start, end, deviceId, streamId, correlationId, globalPid"
    return _write(
        path,
        {
            "StringIds": ("id, value", [(number, name) for name, number in names.items()]),
            "CUPTI_ACTIVITY_KIND_KERNEL": (
                f"{place}, gridX, gridY, gridZ, blockX, blockY, blockZ, demangledName",
                tables["KERNEL"],
            ),
            "CUPTI_ACTIVITY_KIND_MEMCPY": (f"{place}, bytes, copyKind, srcKind, dstKind", tables["MEMCPY"]),
            "CUPTI_ACTIVITY_KIND_MEMSET": (f"{place}, bytes", tables["MEMSET"]),
            "CUPTI_ACTIVITY_KIND_RUNTIME": ("start, end, globalTid, correlationId, nameId", tables["RUNTIME"]),
            "NVTX_EVENTS": ("start, end, text, textId, globalTid", tables["NVTX"]),
            "TARGET_INFO_GPU": ("name", [(device,)]),
        },
    )


def _add_rank(
    tables: dict[str, list[tuple[Any, ...]]], names: dict[str, int], body: dict[str, Any], gpu: int, process: int
) -> None:
    work, calls, steps = _by_category(body)
    for event in work:
        args = event["args"]
        place = (*_ns(event), gpu, args["stream"], args["correlation"], process)
        if event["cat"] == "kernel":
            sides = (*args.get("grid", (1, 1, 1)), *args.get("block", (1, 1, 1)))
            tables["KERNEL"].append((*place, *sides, names.setdefault(event["name"], len(names))))
        elif event["cat"] == "gpu_memcpy":
            kind = next(number for word, number in _KINDS.items() if word in event["name"])
            tables["MEMCPY"].append((*place, args["bytes"], kind, 2, 3))
        else:
            tables["MEMSET"].append((*place, args["bytes"]))
    for call in calls:
        name = names.setdefault(call["name"], len(names))
        tables["RUNTIME"].append((*_ns(call), process + call["tid"] % 2**24, call["args"]["correlation"], name))
    for step in steps:
        text = f"step {step['name'].partition('#')[2]}"
        tables["NVTX"].append((*_ns(step), text, None, process + step["tid"] % 2**24))


def rocpd(path: Path, body: dict[str, Any], device: str = "AMD Instinct MI300X") -> Path:
    """As rocprofv3 writes it: an API call and its kernel have one place on the call stack."""
    work, calls, steps = _by_category(body)
    strings = {name: number for number, name in enumerate(dict.fromkeys(e["name"] for e in (*work, *calls, *steps)))}
    renamed = {name: name.replace("cuda", "hip") for name in strings}
    renamed |= {step["name"]: f"step_{step['name'].partition('#')[2]}" for step in steps}
    events, dispatches, copies, regions = [], [], [], []
    for number, event in enumerate((*work, *calls, *steps)):
        correlation = event.get("args", {}).get("correlation", -1)
        events.append((number, correlation))
        args = event.get("args", {})
        if event["cat"] == "kernel":
            block = args.get("block", (1, 1, 1))
            grid = [count * size for count, size in zip(args.get("grid", (1, 1, 1)), block)]
            dispatches.append((strings[event["name"]], 4, args["stream"], *_ns(event), number, *grid, *block))
        elif event["cat"] == "gpu_memcpy":
            copies.append((strings[event["name"]], args["stream"], *_ns(event), args["bytes"], number))
        elif event["cat"] != "gpu_memset":
            regions.append((strings[event["name"]], event["tid"], *_ns(event), number))
    for event in work:
        if event["cat"] == "gpu_memcpy":
            renamed[event["name"]] = (
                "MEMORY_COPY_HOST_TO_DEVICE" if "HtoD" in event["name"] else "MEMORY_COPY_DEVICE_TO_HOST"
            )
    sides = ", ".join(f"{kind}_size_{side}" for kind in ("grid", "workgroup") for side in "xyz")
    suffix = "_0000fa3b"
    return _write(
        path,
        {
            f"rocpd_string{suffix}": ("id, string", [(number, renamed[name]) for name, number in strings.items()]),
            f"rocpd_event{suffix}": ("id, stack_id", events),
            f"rocpd_region{suffix}": ("name_id, tid, start, end, event_id", regions),
            f"rocpd_info_kernel_symbol{suffix}": ("id, display_name", [(n, name) for name, n in strings.items()]),
            f"rocpd_kernel_dispatch{suffix}": (
                f"kernel_id, agent_id, stream_id, start, end, event_id, {sides}",
                dispatches,
            ),
            f"rocpd_memory_copy{suffix}": ("name_id, stream_id, start, end, size, event_id", copies),
            f"rocpd_info_agent{suffix}": ("type, product_name", [("CPU", "EPYC"), ("GPU", device)]),
        },
    )
