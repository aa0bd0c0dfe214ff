"""Conformance checks for trace sources; plug-in authors run them over their own.

>>> from presim.trace.job import Job
>>> from presim.trace.builder import TraceBuilder
>>> check_job(Job((TraceBuilder().trace(),)))
"""

from __future__ import annotations

import tempfile

import numpy as np

from presim.sources.source import Source
from presim.trace.job import Job
from presim.trace.schema import Trace
from presim.trace.trace_invariants import check


def check_source(source: Source) -> Job:
    """Check that a source delivers the same valid job each time; returns the job.

    Raises:
        AssertionError: a check fails.
    """
    first, second = source.job(), source.job()
    check_job(first)
    assert source.name, "a source has a name"
    assert list(map(_content, first.traces)) == list(map(_content, second.traces)), "a source delivers the same job"
    return first


def check_job(job: Job) -> None:
    """Check a job: valid traces of one world, every rank represented at most once, unchanged by saving and reading.

    Raises:
        AssertionError: a check fails.
    """
    ranks = [trace.manifest.rank for trace in job.traces]
    assert ranks, "a job has at least one trace"
    assert ranks == sorted(set(ranks)), f"traces are ascending by rank, each once; got {ranks}"
    first = job.traces[0].manifest
    worlds = {(trace.manifest.world_size, trace.manifest.gpu, trace.manifest.gpus_per_node) for trace in job.traces}
    assert len(worlds) == 1, f"all ranks are of one world on one GPU; got {sorted(worlds)}"
    represented_ranks = [rank for represented in job.stands_for.values() for rank in represented]
    assert set(job.stands_for) <= set(ranks), "only ranks with a trace stand for others"
    assert len({*represented_ranks, *ranks}) == len(represented_ranks) + len(ranks), (
        "a rank has a trace or one that stands for it"
    )
    assert max([*represented_ranks, *ranks]) < first.world_size, f"ranks are below the world size {first.world_size}"
    assert all(note.endswith(".") for note in job.notes), f"notes are sentences; got {list(job.notes)}"
    for trace in job.traces:
        check(trace)
        assert (trace.columns["host_ns"].astype(np.int64) >= 0).all(), "host time is not negative"
    with tempfile.TemporaryDirectory() as folder:
        job.save(folder)
        loaded = Job.load(folder)
    assert list(map(_content, loaded.traces)) == list(map(_content, job.traces)), "a job is saved and read unchanged"
    assert {rank: list(represented) for rank, represented in job.stands_for.items() if represented} == dict(
        loaded.stands_for
    )


def _content(trace: Trace) -> tuple[object, ...]:
    columns = tuple(np.asarray(column).tobytes() for column in trace.columns.values())
    return trace.manifest, trace.signatures, trace.scopes, trace.operators, trace.sites, columns
