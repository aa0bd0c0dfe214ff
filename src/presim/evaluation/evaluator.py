"""Evaluation of jobs: the stable interface for studies that evaluate many jobs in one process.

>>> import presim
>>> from presim.hardware import choose_cluster
>>> job = presim.Job.load("traces/7b")  # doctest: +SKIP
>>> presim.evaluate(job, choose_cluster(gpu="h200", nodes=2)).step_time_s  # doctest: +SKIP
"""

from __future__ import annotations

import collections
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from presim.cost.chain import Chain, price_trace
from presim.cost.estimators import versions
from presim.cost.price import PricedTrace
from presim.cost.price_cache import with_caches
from presim.engine.simulation_options import Options
from presim.evaluation import evaluate_traces
from presim.evaluation.idle_machine import Prepared, prepare
from presim.hardware.cluster import Cluster
from presim.result import Result
from presim.trace.job import Job
from presim.trace.schema import Trace


class Evaluator:
    """Evaluates jobs, and caches prepared traces and prices by cluster between calls.

    A repeated call for a job and a cluster only simulates and analyses. Changed files of prices are read again.
    """

    def __init__(self, prices: Sequence[str | os.PathLike[str]] = (), jobs: int = 16) -> None:
        """``prices``: folders of measured tables and learned models. ``jobs``: number of jobs whose data is cached."""
        self._folders = [Path(folder) for folder in prices]
        self._max_jobs = jobs
        self._prepared: collections.OrderedDict[int, tuple[Job, Prepared]] = collections.OrderedDict()
        self._priced: collections.OrderedDict[tuple[int, bytes], tuple[Trace, PricedTrace]] = collections.OrderedDict()
        self._chains: dict[tuple[bytes, tuple[tuple[str, str], ...]], Chain] = {}

    def evaluate(self, job: Job, cluster: Cluster, options: Options | None = None) -> Result:
        """Price a job for a cluster, simulate and analyse it.

        Raises:
            InputError: the job does not fit the cluster.
            HangError: its ranks deadlock.
        """
        prepared = self._prepare(job)
        evaluation = evaluate_traces.evaluate(
            job,
            cluster,
            options,
            prepared=prepared,
            pricer=self._price,
        )
        return evaluation.result

    def _prepare(self, job: Job) -> Prepared:
        cached = self._prepared.get(id(job))
        if cached is None or cached[0] is not job:
            cached = (job, prepare(job.traces))
            self._prepared[id(job)] = cached
        self._prepared.move_to_end(id(job))
        while len(self._prepared) > self._max_jobs:
            self._prepared.popitem(last=False)
        return cached[1]

    def _price(self, trace: Trace, cluster: Cluster) -> PricedTrace:
        """Prices of a trace: cached ones, else from a chain that caches prices by signature."""
        name = _name(cluster, self._folders)
        cached = self._priced.get((id(trace), name))
        if cached is None or cached[0] is not trace:
            chain = self._chain(cluster, name, trace.manifest.nccl)
            cached = (trace, price_trace(trace, cluster, chain, prices=self._folders))
            self._priced[id(trace), name] = cached
        self._priced.move_to_end((id(trace), name))
        while len(self._priced) > 8 * self._max_jobs:  # a job has a few captured ranks
            self._priced.popitem(last=False)
        return cached[1]

    def _chain(self, cluster: Cluster, name: bytes, nccl: Mapping[str, str]) -> Chain:
        key = name, tuple(sorted(nccl.items()))
        if key not in self._chains:
            self._chains[key] = with_caches(Chain.default(cluster, nccl, self._folders))
        return self._chains[key]


def _name(cluster: Cluster, folders: Sequence[Path]) -> bytes:
    """A key for cached prices: the cluster with all its figures, and the versions of price files."""
    return msgspec.json.encode((cluster, [(str(path), changed) for path, changed in versions(folders)]))


_shared = Evaluator()


def evaluate(job: Job, cluster: Cluster, options: Options | None = None) -> Result:
    """Evaluate a job on a cluster; calls in one process share prepared traces and prices.

    `Evaluator` has the same with folders of your own prices.

    Raises:
        InputError: the job does not fit the cluster.
        HangError: its ranks deadlock.
    """
    return _shared.evaluate(job, cluster, options)
