"""Finds a round of micro-batches that takes as long as the next one, on all ranks, in steps of captured programs.

Host times of a capture are measured, and so a simulation never comes to the same state twice, to the nanosecond. What
shows that a pipeline has settled: on each rank, a round and the one after it launch the same work and take equally
long; and ranks take about as long as one another. Those that are faster run ahead until they have to wait for the
slowest one, whose rounds the step therefore takes. A host that takes longer than any device would be that one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from presim.analysis.time.step_period import Stretch
from presim.engine.timeline import Timeline
from presim.trace.schema import Kind, Trace

Ints = NDArray[np.int64]
_BETWEEN_ROUNDS = 5e-4  # largest difference between a round and the next one on a rank, relative to them
_BETWEEN_RANKS = 5e-3  # and between ranks: Llama 405B in eight stages has 2.2e-3
_CONTENT = ("kind", "phase", "stream", "signature", "scope", "operator")


def find_rounds(
    traces: Sequence[Trace], timelines: Sequence[Timeline], begins: Sequence[Ints], period: int
) -> list[Stretch] | None:
    """The round of every step; None if a step that begins micro-batches does not settle.

    ``begins``: by rank, the kernels with which micro-batches begin, of steps with as many on all ranks. ``period``:
    micro-batches in a round.
    """
    step_rounds = []
    for number in range(len(traces[0].steps())):
        marks = [_within(trace.steps()[number], rank_begins) for trace, rank_begins in zip(traces, begins)]
        settled = _settled_round(traces, timelines, marks, period) if len(marks[0]) else _nothing(traces)
        if settled is None:
            return None
        step_rounds.append(settled)
    return step_rounds


def _within(step: slice, begins: Ints) -> Ints:
    part: Ints = begins[(begins >= step.start) & (begins < step.stop)]
    return part


def _nothing(traces: Sequence[Trace]) -> Stretch:
    return Stretch(0, 0, (slice(0, 0),) * len(traces))


def _settled_round(
    traces: Sequence[Trace], timelines: Sequence[Timeline], marks: Sequence[Ints], period: int
) -> Stretch | None:
    """The latest round that the next one repeats, as long as the slowest rank takes for it."""
    if len({len(rank_marks) for rank_marks in marks}) > 1:
        return None
    starts = np.array([timeline.start_ns[rank_marks] for timeline, rank_marks in zip(timelines, marks)])
    issues = np.array([timeline.issue_ns[rank_marks] for timeline, rank_marks in zip(timelines, marks)])
    durations, host_durations = starts[:, period:] - starts[:, :-period], issues[:, period:] - issues[:, :-period]
    rounds, next_rounds = durations[:, :-period], durations[:, period:]
    if not rounds.size:
        return None
    slowest, fastest = (bound(np.minimum(rounds, next_rounds), axis=0) for bound in (np.max, np.min))
    is_settled = (np.abs(next_rounds - rounds) <= _BETWEEN_ROUNDS * rounds).all(axis=0) & (fastest > 0)
    is_settled &= slowest - fastest <= _BETWEEN_RANKS * slowest
    is_settled &= (host_durations[:, period:] <= slowest * (1 + _BETWEEN_ROUNDS)).all(axis=0)
    for first in np.flatnonzero(is_settled)[::-1].tolist():
        rows = [rank_marks[[first, first + period, first + 2 * period]].tolist() for rank_marks in marks]
        if all(_is_same_work(trace, *rank_rows) for trace, rank_rows in zip(traces, rows)):
            slowest_rank = int(rounds[:, first].argmax())
            start, end = starts[slowest_rank, [first, first + period]].tolist()
            return Stretch(start, end, tuple(slice(*rank_rows[:2]) for rank_rows in rows))
    return None


def _is_same_work(trace: Trace, begin: int, end: int, next_end: int) -> bool:
    """Whether the device work of a round is that of the next one, in its order."""
    is_work = trace.mask(Kind.WORK, Kind.COLLECTIVE)
    rows, next_rows = begin + np.flatnonzero(is_work[begin:end]), end + np.flatnonzero(is_work[end:next_end])
    return len(rows) == len(next_rows) and all(
        np.array_equal(trace.columns[name][rows], trace.columns[name][next_rows]) for name in _CONTENT
    )
