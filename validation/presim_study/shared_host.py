"""One measurement of host time for two traces of the same work."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from presim.trace.job import Job
from presim.trace.schema import Trace

Ints = NDArray[np.int64]
_LAYER = re.compile(r"(?<=\.)\d+(?=[.)]|$)")


class HostTimes:
    """The mean host time before each call of a job's last step, by what the call is: not by its layer.

    Host time differs between two captures of one program. With the times of one of them both are alike where the
    host does the same, so that what is left is how often it does it.
    """

    def __init__(self, job: Job) -> None:
        self._numbers: dict[str, int] = {}
        rows, times = [], []
        for trace in job.traces:
            last = trace.steps()[-1]
            rows.append(self._contents(trace, last))
            times.append(trace.columns["host_ns"][last].astype(np.float64))
        self._contents_by_index, index = np.unique(np.concatenate(rows), axis=0, return_inverse=True)
        index = index.reshape(-1)
        counts = np.bincount(index)
        self._mean_ns = np.bincount(index, np.concatenate(times)) / counts

    def applied(self, job: Job) -> Job:
        """The job with these times in its last step; calls that only this job has keep their own."""
        return dataclasses.replace(job, traces=tuple(self._with_means(trace) for trace in job.traces))

    def _with_means(self, trace: Trace) -> Trace:
        last = trace.steps()[-1]
        contents = self._contents(trace, last)
        stacked = np.concatenate([self._contents_by_index, contents])
        distinct, inverse = np.unique(stacked, axis=0, return_inverse=True)
        means = np.full(len(distinct), np.nan)
        inverse = inverse.reshape(-1)
        means[inverse[: len(self._contents_by_index)]] = self._mean_ns
        host_ns = trace.columns["host_ns"].copy()
        shared_ns = means[inverse[len(self._contents_by_index) :]]
        host_ns[last] = np.where(np.isnan(shared_ns), host_ns[last], np.rint(shared_ns)).astype(np.int64)
        return dataclasses.replace(trace, columns={**trace.columns, "host_ns": host_ns})

    def _contents(self, trace: Trace, entries: slice) -> Ints:
        """What each entry is, comparable between traces [entries, parts]."""
        tables = {
            "signature": self._indices(map(repr, trace.signatures)),
            "scope": self._indices(_LAYER.sub("{}", name) for name in trace.scopes),
            "operator": self._indices(_LAYER.sub("{}", name) for name in trace.operators),
            "site": self._indices(trace.sites),
        }
        columns = [trace.columns[name][entries].astype(np.int64) for name in ("kind", "phase")]
        columns += [table[trace.columns[name][entries].astype(np.int64)] for name, table in tables.items()]
        return np.stack(columns, axis=1)

    def _indices(self, names: Iterable[str]) -> Ints:
        """Numbers of names that are the same in all traces; the last answers for the index -1."""
        return np.array([*(self._numbers.setdefault(name, len(self._numbers)) for name in names), -1], np.int64)
