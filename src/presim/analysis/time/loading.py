"""How long a rank waits for the worker processes of its data loaders."""

from __future__ import annotations

import dataclasses
import statistics

import numpy as np

from presim.analysis.time.breakdown import Breakdown, Instant
from presim.analysis.time.steps import TraceSteps
from presim.engine.timeline import Timeline
from presim.trace.schema import Kind, Trace, workers_per_loader


@dataclasses.dataclass(frozen=True)
class DataLoading:
    """Waiting for data; all 0 without workers."""

    in_step_ns: int = 0  # in the steady step, as far as the device waits meanwhile
    mean_wait_ns: float = 0.0  # of the host, over the repeated steps, as many as a multiple of the workers
    mean_step_ns: float = 0.0  # of the same steps
    workers: int = 0  # of a loader
    batch_ns: float = 0.0  # that a worker takes for a batch, on average


def data_loading(trace: Trace, timeline: Timeline, breakdown: Breakdown, steps: TraceSteps) -> DataLoading:
    """Waiting for data in the steps of a rank; ``breakdown``: of the steady one."""
    waits = trace.mask(Kind.FETCH_WAIT)
    if not waits.any():
        return DataLoading()
    waited = np.where(waits, timeline.end_ns - timeline.start_ns, 0)
    # Other requests had not been answered when the script ended.
    is_fetch = trace.mask(Kind.FETCH) & (trace.columns["value"].astype(np.int64) > 0)
    requests = trace.columns["object"][is_fetch].astype(np.int64)
    averaged = [steps.steps[index] for index in steps.averaged or (steps.steady_index,)]
    fetched = (timeline.end_ns - timeline.start_ns)[is_fetch]
    return DataLoading(
        in_step_ns=min(
            int(waited[steps.steady.entries].sum()) + steps.added_wait_ns, breakdown.spent_ns[Instant.HOST_BOUND]
        ),
        mean_wait_ns=statistics.fmean(int(waited[step.entries].sum()) for step in averaged),
        mean_step_ns=statistics.fmean(step.duration_ns for step in averaged),
        workers=workers_per_loader(requests) if len(requests) else 0,
        batch_ns=float(fetched.sum()) / max(len(np.unique(requests)), 1),
    )
