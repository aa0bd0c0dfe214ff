"""Batches that a data loader's worker processes prepare beside the host.

A worker handles its requests one after the other. The capture measured the time of each request. On the cluster it is
multiplied by the host factor, and again by processes per core if a node has fewer cores than processes. Time in which
a worker sleeps is not scaled.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from presim.engine.simulation_options import Options
from presim.engine.state import FETCH
from presim.trace.schema import Kind, Trace, fetch_worker, workers_per_loader

Ints = NDArray[np.int64]


def fetch_ns(trace: Trace, options: Options) -> Ints:
    """Time that a worker of the cluster takes for each request, ns [entries]; 0 for other entries."""
    is_fetch = trace.mask(Kind.FETCH)
    if not is_fetch.any():
        return np.zeros(len(trace), np.int64)
    factor = options.host_factor_of(trace.manifest) * _sharing(trace, options)
    value = np.where(is_fetch, trace.columns["value"], 0)
    scaled: Ints = np.rint(value * np.where(trace.columns["stream"] == 0, factor, 1.0)).astype(np.int64)
    return scaled


def _sharing(trace: Trace, options: Options) -> float:
    """Processes per core, at least 1: the workers of the busiest loader and the rank itself."""
    requests = trace.columns["object"][trace.mask(Kind.FETCH)].astype(np.int64)
    return max(1.0, (workers_per_loader(requests) + 1) / options.cores_per_rank) if options.cores_per_rank else 1.0


def fetch_targets(code: Ints, request: Ints) -> Ints:
    """For each request [ops] the former one to the same worker, for each wait the last request of that number."""
    target = np.full(len(code), -1, np.int64)
    last_of_worker: dict[int, int] = {}
    last_of_request: dict[int, int] = {}
    for op in np.flatnonzero(code >= FETCH).tolist():
        number = int(request[op])
        if code[op] == FETCH:
            worker = fetch_worker(number)
            target[op] = last_of_worker.get(worker, -1)
            last_of_worker[worker] = last_of_request[number] = op
        else:
            target[op] = last_of_request.get(number, -1)
    return target
