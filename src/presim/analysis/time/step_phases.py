"""Time of the phases of the steady step."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from presim.analysis.time.steps import TraceSteps
from presim.engine.timeline import Timeline
from presim.result.evaluated_job import StepPhase
from presim.trace.schema import Kind, Trace
from presim.trace.schema import StepPhase as TracePhase

_Label = tuple[str, str]  # kind, line


def step_phases(trace: Trace, timeline: Timeline, steps: TraceSteps) -> list[StepPhase]:
    """The phases of the steady step in order, then those that only other repeated steps have.

    The times of a step's phases add up to its own: each begins where the work of the one before it ends.
    """
    phases_by_step: dict[int, list[TracePhase]] = {}
    for phase in trace.manifest.step.phases:
        phases_by_step.setdefault(phase.step, []).append(phase)
    device = trace.mask(Kind.WORK, Kind.COLLECTIVE)
    ends_ns = np.maximum.accumulate(np.where(device, timeline.end_ns, 0)) if phases_by_step else np.zeros(0, np.int64)
    times_by_label: dict[_Label, dict[int, tuple[int, int]]] = {}  # by step: runs, ns
    for index in dict.fromkeys((steps.steady_index, *steps.repeated)):
        times = _times(phases_by_step.get(index, []), ends_ns, steps.steps[index].start_ns, steps.steps[index].end_ns)
        for label, runs_and_ns in times.items():
            times_by_label.setdefault(label, {})[index] = runs_and_ns
    counted = max(len(steps.repeated), 1)
    rows = [_row(label, times, steps, counted) for label, times in times_by_label.items()]
    return rows if len(rows) > 1 or any(row.kind == "loop" for row in rows) else []


def _times(
    phases: Sequence[TracePhase], ends_ns: np.ndarray, start_ns: int, end_ns: int
) -> dict[_Label, tuple[int, int]]:
    """Runs and ns of the phases of one step, by label in order."""
    times: dict[_Label, tuple[int, int]] = {}
    for phase in phases:
        is_last = phase is phases[-1]
        stop_ns = end_ns if is_last else min(max(int(ends_ns[phase.end - 1]) if phase.end else 0, start_ns), end_ns)
        runs, spent_ns = times.get((phase.kind, phase.line), (0, 0))
        times[phase.kind, phase.line] = runs + phase.runs, spent_ns + stop_ns - start_ns
        start_ns = stop_ns
    return times


def _row(label: _Label, times: dict[int, tuple[int, int]], steps: TraceSteps, counted: int) -> StepPhase:
    """A phase in the steady step, or, if that lacks it, its mean over the steps that have it."""
    is_steady = steps.steady_index in times
    described = [times[steps.steady_index]] if is_steady else list(times.values())
    runs = round(statistics.fmean(runs for runs, _ in described))
    spent_s = statistics.fmean(spent_ns for _, spent_ns in described) / 1e9
    share = spent_s * 1e9 / max(steps.steady.duration_ns, 1) if is_steady else None
    return StepPhase(*label, runs, spent_s / max(runs, 1), spent_s, share, len(times) / counted)
