"""Requests to the workers of data loaders.

A loader's workers take turns, and each numbers its own requests. So the request that comes some requests later follows
from worker and number alone, wherever it was asked for.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from presim.trace.schema import Kind, Trace, fetch_loader, fetch_worker

Ints = NDArray[np.int64]
_NUMBER_BITS = 24


def loaders(trace: Trace, entries: Ints) -> Ints:
    """The data loader that each of some entries asks or waits for, -1 where there is none."""
    concerns_loader = trace.mask(Kind.FETCH, Kind.FETCH_WAIT)[entries]
    result: Ints = np.where(concerns_loader, fetch_loader(trace.columns["object"][entries].astype(np.int64)), -1)
    return result


def later(requests: Ints, shifts: Ints, workers: dict[int, Ints]) -> Ints:
    """The requests that come ``shifts`` after these, each to the worker whose turn it is then.

    ``workers``: see `workers_by_loader`.
    """
    result = requests.copy()
    for loader, workers_in_turn in workers.items():
        is_own = fetch_loader(requests) == loader
        turns = np.searchsorted(workers_in_turn, fetch_worker(requests[is_own])) + shifts[is_own]
        rounds, turns = np.divmod(turns, len(workers_in_turn))
        numbers = requests[is_own] + rounds & (1 << _NUMBER_BITS) - 1
        result[is_own] = (workers_in_turn[turns] << _NUMBER_BITS) + numbers
    return result


def workers_by_loader(trace: Trace) -> dict[int, Ints]:
    """The workers of each loader, as in `presim.trace.schema.fetch_worker`."""
    requests = trace.columns["object"][trace.mask(Kind.FETCH)].astype(np.int64)
    return {
        number: np.unique(fetch_worker(requests[fetch_loader(requests) == number]))
        for number in np.unique(fetch_loader(requests)).tolist()
    }
