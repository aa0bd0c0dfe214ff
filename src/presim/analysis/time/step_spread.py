"""How much steps differ, and what unusual ones do more or less of."""

from __future__ import annotations

import dataclasses
import statistics

from presim.analysis.time.steps import Step, TraceSteps
from presim.engine.timeline import Timeline
from presim.result.evaluated_job import UnusualStep
from presim.trace.schema import Kind, Phase, Trace
from presim.units import seconds

UNUSUAL = 1.2  # times as long as the median step, or as short
_EXPLAINS = 0.3  # share of a step's difference from which one kind of work explains it
_NAMES = {
    Phase.OTHER: "work outside modules",
    Phase.FORWARD: "forward",
    Phase.BACKWARD: "backward",
    Phase.RECOMPUTE: "recomputation",
    Phase.OPTIMIZER: "optimizer",
}


@dataclasses.dataclass(frozen=True)
class StepSpread:
    """Seconds of the repeated steps; None if there are none."""

    mean_s: float | None = None  # over whole rounds of what recurs
    median_s: float | None = None
    min_s: float | None = None
    max_s: float | None = None


def step_spread(steps: TraceSteps) -> StepSpread:
    """Mean, median, shortest and longest of the repeated steps."""
    times = [steps.steps[index].duration_ns / 1e9 for index in steps.repeated]
    if not times:
        return StepSpread()
    mean_s = statistics.fmean(steps.steps[index].duration_ns / 1e9 for index in steps.averaged)
    return StepSpread(mean_s, statistics.median(times), min(times), max(times))


def unusual_steps(trace: Trace, timeline: Timeline, steps: TraceSteps) -> list[UnusualStep]:
    """The repeated steps that take much longer or shorter than the median one. That the first step differs is usual."""
    median_ns = (step_spread(steps).median_s or 0.0) * 1e9
    return [
        UnusualStep(index, step.duration_ns / 1e9, _reason(trace, timeline, step, steps.steps[steps.steady_index]))
        for index, step in ((index, steps.steps[index]) for index in steps.repeated)
        if not median_ns / UNUSUAL < step.duration_ns < median_ns * UNUSUAL
    ]


def _reason(trace: Trace, timeline: Timeline, step: Step, usual: Step) -> str:
    """The phase whose device time explains most of the difference between two steps; empty if none does."""
    longer_ns = step.duration_ns - usual.duration_ns
    spent, usually = (_spent_ns(trace, timeline, compared) for compared in (step, usual))
    kind = max(spent, key=lambda kind: (spent[kind] - usually[kind]) * (1 if longer_ns > 0 else -1))
    difference = spent[kind] - usually[kind]
    if difference * longer_ns <= 0 or abs(difference) < _EXPLAINS * abs(longer_ns):
        return ""
    return f"{seconds(abs(difference) / 1e9)} {'more' if difference > 0 else 'less'} {kind}"


def _spent_ns(trace: Trace, timeline: Timeline, step: Step) -> dict[str, int]:
    """Time of a step's device work by phase, and of its waiting for data, ns."""
    spent = (timeline.end_ns - timeline.start_ns)[step.entries]
    work, waits = (mask[step.entries] for mask in (trace.mask(Kind.WORK, Kind.COLLECTIVE), trace.mask(Kind.FETCH_WAIT)))
    phases = trace.columns["phase"][step.entries]
    by_phase = {name: int(spent[work & (phases == phase)].sum()) for phase, name in _NAMES.items()}
    return {**by_phase, "waiting for data": int(spent[waits].sum())}
