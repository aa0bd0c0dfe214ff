"""Traces as an idle machine would have captured them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from presim.errors import InputError
from presim.trace.capture_speed import on_idle_machine, slowdown_between
from presim.trace.host_noise import without_host_noise
from presim.trace.schema import Trace


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A job's traces with the host times of an idle machine."""

    traces: list[Trace]
    undisturbed: bool  # whether host noise was removed
    slowdown: float | None  # slowdown of the reported rank's host time that was divided out; None: unknown


def prepare(traces: Sequence[Trace], *, rank: int | None = None) -> Prepared:
    """Remove the effect of other work on the capturing machine from host times; ``rank`` as in `evaluate`."""
    raw_traces = list(traces)
    if all(trace.manifest.origin == "composed" for trace in raw_traces):
        return Prepared(raw_traces, True, None)
    idle = [on_idle_machine(trace) for trace in raw_traces]
    captured = without_host_noise(idle)
    undisturbed = any(after is not before for after, before in zip(captured, idle))
    return Prepared(captured, undisturbed, slowdown_between(choose_trace(raw_traces, rank), choose_trace(idle, rank)))


def choose_trace(traces: list[Trace], rank: int | None) -> Trace:
    """The trace to report on: that of ``rank``, by default of the lowest captured rank.

    Raises:
        InputError: the rank was not captured.
    """
    by_rank = {trace.manifest.rank: trace for trace in traces}
    if not by_rank:
        raise ValueError("a job has at least one trace")
    if rank is not None and rank not in by_rank:
        raise InputError(f"rank {rank} was not captured; the job has {_listing(sorted(by_rank))}")
    return by_rank[min(by_rank) if rank is None else rank]


def _listing(ranks: list[int]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:8])
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{', …' if len(ranks) > 8 else ''}"
