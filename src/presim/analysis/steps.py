"""Which part of a timeline is a step, and which step stands for the run."""

from __future__ import annotations

import dataclasses

import numpy as np

from presim.engine.timeline import Timeline
from presim.trace.schema import Kind, Phase, Trace


@dataclasses.dataclass(frozen=True)
class Step:
    """One step: the entries its host issued, and its window on the device clock."""

    entries: slice
    start_ns: int  # the end of the last device work of the step before; of the first: its first forward kernel
    end_ns: int  # the end of its own last device work; never before start_ns

    @property
    def duration_ns(self) -> int:
        """The step's time."""
        return self.end_ns - self.start_ns


@dataclasses.dataclass(frozen=True)
class Steps:
    """All steps of a trace; without optimizer steps the whole run is the only one."""

    steps: tuple[Step, ...]  # never empty
    steady_index: int
    counted: int  # optimizer steps in the trace

    @property
    def steady(self) -> Step:
        """The step that the figures describe: the median of those after the first."""
        return self.steps[self.steady_index]

    @property
    def is_steady(self) -> bool:
        """Whether that step comes after the first."""
        return self.steady_index > 0


def find_steps(trace: Trace, timeline: Timeline) -> Steps:
    """Cut a timeline into steps.

    Windows touch: together they cover the time from the first forward kernel to the end of the last step, so work
    that one step leaves to overlap with the next is counted where it runs.
    """
    device = trace.mask(Kind.WORK, Kind.COLLECTIVE)
    slices = trace.steps()
    if not slices:
        return Steps((Step(slice(0, len(trace)), 0, _last_end(timeline, device, len(trace))),), 0, 0)
    steps: list[Step] = []
    start = _first_forward(trace, timeline, device, slices[0])
    for entries in slices:
        end = max(start, _last_end(timeline, device, entries.stop))
        steps.append(Step(entries, start, end))
        start = end
    return Steps(tuple(steps), _median_index([step.duration_ns for step in steps]), len(slices))


def _first_forward(trace: Trace, timeline: Timeline, device: np.ndarray, first: slice) -> int:
    """When the first forward kernel starts: what comes before is set-up, and belongs to no step."""
    forward = device[first] & (trace.columns["phase"][first] == Phase.FORWARD)
    starts = timeline.start_ns[first][forward]
    return int(starts.min()) if len(starts) else 0


def _last_end(timeline: Timeline, device: np.ndarray, stop: int) -> int:
    ends = timeline.end_ns[:stop][device[:stop]]
    return int(ends.max()) if len(ends) else 0


def _median_index(durations: list[int]) -> int:
    """Index of the (lower) median of the durations after the first; the later one of equals."""
    if len(durations) == 1:
        return 0
    rest = sorted(durations[1:])
    median = rest[(len(rest) - 1) // 2]
    return max(index for index, duration in enumerate(durations) if index and duration == median)
