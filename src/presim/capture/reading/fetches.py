"""Add to a log how long the workers of data loaders took for each batch.

Each worker leaves a file beside the log, with two numbers for each batch: ns of CPU time, and ns in which it slept.
"""

from __future__ import annotations

import dataclasses
import struct
from pathlib import Path

import numpy as np

from presim.capture.reading.log import Log
from presim.trace.schema import Kind, fetch_parts

TIMES = struct.Struct("<qq")


def times_file(directory: Path, loader: int, worker: int) -> Path:
    """Where a worker appends the times of its batches."""
    return directory / f"fetches-{loader}-{worker}"


def with_fetch_times(log: Log, directory: Path) -> Log:
    """The log with the CPU time of each request, and a second FETCH for the time in which its worker slept.

    Requests whose batch was not finished when the script ended take no time; the script did not wait for them.
    """
    rows = np.flatnonzero(log.records["kind"] == Kind.FETCH)
    if not len(rows):
        return log
    records = log.records.copy()
    spent = np.zeros((len(rows), 2), np.int64)
    times: dict[tuple[int, int], list[tuple[int, int]]] = {}  # by loader and worker
    for row, request in enumerate(records["object"][rows].tolist()):
        loader, worker, number = fetch_parts(request)
        if (loader, worker) not in times:
            times[loader, worker] = _read_times(times_file(directory, loader, worker))
        if number < len(times[loader, worker]):
            spent[row] = times[loader, worker][number]
    records["value"][rows] = spent[:, 0]
    sleeping = spent[:, 1] > 0
    added = records[rows[sleeping]]
    added["value"], added["stream"] = spent[sleeping, 1], 1
    return dataclasses.replace(log, records=np.insert(records, rows[sleeping] + 1, added))


def _read_times(path: Path) -> list[tuple[int, int]]:
    data = path.read_bytes() if path.exists() else b""
    complete = len(data) - len(data) % TIMES.size
    return list(TIMES.iter_unpack(data[:complete]))
