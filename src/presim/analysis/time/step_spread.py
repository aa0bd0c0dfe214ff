"""How much steps differ, and what unusual ones do more or less of."""

from __future__ import annotations

import dataclasses
import statistics

from presim.analysis.time.steps import Step, Steps
from presim.engine.timeline import Timeline
from presim.figures.job import UnusualStep
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
    """Seconds of the steps after the first that set nothing up; None if there are none."""

    mean_s: float | None = None
    median_s: float | None = None
    min_s: float | None = None
    max_s: float | None = None


def step_spread(steps: Steps) -> StepSpread:
    """Mean, median, shortest and longest of the repeated steps."""
    times = [steps.steps[index].duration_ns / 1e9 for index in steps.repeated]
    if not times:
        return StepSpread()
    return StepSpread(statistics.fmean(times), statistics.median(times), min(times), max(times))


def unusual_steps(trace: Trace, timeline: Timeline, steps: Steps) -> list[UnusualStep]:
    """The repeated steps that take much longer or shorter than the median one."""
    median = step_spread(steps).median_s or 0.0
    return [
        UnusualStep(index, step.duration_ns / 1e9, _reason(trace, timeline, step, steps.steady))
        for index, step in ((index, steps.steps[index]) for index in steps.repeated)
        if not median / UNUSUAL < step.duration_ns / 1e9 < median * UNUSUAL
    ]


def _reason(trace: Trace, timeline: Timeline, step: Step, usual: Step) -> str:
    """The phase whose device time explains most of the difference between two steps; empty if none does."""
    longer_ns = step.duration_ns - usual.duration_ns
    own, other = (_device_ns(trace, timeline, each) for each in (step, usual))
    phase = max(_NAMES, key=lambda phase: (own[phase] - other[phase]) * (1 if longer_ns > 0 else -1))
    difference = own[phase] - other[phase]
    if difference * longer_ns <= 0 or abs(difference) < _EXPLAINS * abs(longer_ns):
        return ""
    return f"{seconds(abs(difference) / 1e9)} {'more' if difference > 0 else 'less'} {_NAMES[phase]}"


def _device_ns(trace: Trace, timeline: Timeline, step: Step) -> dict[Phase, int]:
    """Time of a step's device work by phase, ns."""
    work = trace.mask(Kind.WORK, Kind.COLLECTIVE)[step.entries]
    spent = (timeline.end_ns - timeline.start_ns)[step.entries]
    phases = trace.columns["phase"][step.entries]
    return {phase: int(spent[work & (phases == phase)].sum()) for phase in _NAMES}
