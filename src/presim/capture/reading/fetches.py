"""Add to a log how long the workers of data loaders took for each batch.

Each worker leaves a file beside the log, with two numbers for each batch: ns of CPU time, and ns in which it slept.
With a live clock the host has slept after each wait until the batch was ready. Those sleeps are left out, because the
waits are simulated again.
"""

from __future__ import annotations

import dataclasses
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from presim.capture.reading.log import Log
from presim.trace.schema import Kind, fetch_parts

TIMES = struct.Struct("<qq")
LIVE = "fetches-live"  # file beside the log of a host that slept
LIVE_WORKERS = "PRESIM_LIVE_WORKERS"  # variable with a live clock: the host factor, and cores per rank or 0


def times_file(directory: Path, loader: int) -> Path:
    """Where workers append the times of their batches, without ``-`` and the worker's number at its end."""
    return directory / f"fetches-{loader}"


def with_fetch_times(log: Log, directory: Path) -> Log:
    """The log with the CPU time of each request, and a second FETCH for the time in which its worker slept.

    Requests whose batch was not finished when the script ended take no time; the script did not wait for them.
    """
    if not (log.records["kind"] == Kind.FETCH).any():
        return log
    records = _without_sleeps(log.records) if (directory / LIVE).exists() else log.records.copy()
    rows = np.flatnonzero(records["kind"] == Kind.FETCH)
    spent = np.zeros((len(rows), 2), np.int64)
    times: dict[tuple[int, int], list[tuple[int, int]]] = {}  # by loader and worker
    for row, request in enumerate(records["object"][rows].tolist()):
        loader, worker, number = fetch_parts(request)
        if (loader, worker) not in times:
            times[loader, worker] = _read_times(Path(f"{times_file(directory, loader)}-{worker}"))
        if number < len(times[loader, worker]):
            spent[row] = times[loader, worker][number]
    records["value"][rows] = spent[:, 0]
    sleeping = spent[:, 1] > 0
    added = records[rows[sleeping]]
    added["value"], added["stream"] = spent[sleeping, 1], 1
    return dataclasses.replace(log, records=np.insert(records, rows[sleeping] + 1, added))


def _without_sleeps(records: NDArray[np.void]) -> NDArray[np.void]:
    """The records without sleeps right after a wait for a batch."""
    kinds = records["kind"]
    slept = np.append(False, (kinds[:-1] == Kind.FETCH_WAIT) & (kinds[1:] == Kind.HOST_WAIT))
    awake: NDArray[np.void] = records[~slept]
    return awake


def _read_times(path: Path) -> list[tuple[int, int]]:
    data = path.read_bytes() if path.exists() else b""
    complete = len(data) - len(data) % TIMES.size
    return list(TIMES.iter_unpack(data[:complete]))
