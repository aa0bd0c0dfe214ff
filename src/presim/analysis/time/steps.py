"""Finds the steps in a timeline and the one that represents the run."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from presim.engine.timeline import Timeline
from presim.trace.schema import COMPILING, Kind, Phase, Trace, workers_per_loader

Ints = NDArray[np.int64]
_LOADER_BOUND = 0.1  # share of the mean step from which waiting for data is averaged
_SAME_WORK = 0.02  # relative difference of device work up to which steps do the same
_WARM = 1.2  # a step with the median step's work that takes longer than this multiple of its time is a warm-up
_WARM_UP_STEPS = 4  # repeated steps from which the first of them may count as warm-up


@dataclasses.dataclass(frozen=True)
class Step:
    """One step: the entries its host issued, and its window on the device clock."""

    entries: slice
    start_ns: int  # end of the previous step's device work; first step: start of its first forward kernel in the loop
    end_ns: int  # the end of its own last device work; never before start_ns
    repeated_entries: slice | None = None  # entries that occur `times` more (`presim.analysis.time.step_period`)
    times: int = 0
    added_wait_ns: int = 0  # by which the host of a mean step waits longer for data; negative: shorter

    @property
    def duration_ns(self) -> int:
        """The step's time, with the mean waiting for data."""
        return self.end_ns - self.start_ns + self.added_wait_ns

    @property
    def span_ns(self) -> tuple[int, int]:
        """Its window on the device clock."""
        return self.start_ns, self.end_ns

    @property
    def spans(self) -> tuple[tuple[slice, int], ...]:
        """Its entries, and how often each stretch of them counts."""
        return (
            ((self.entries, 1), (self.repeated_entries, self.times)) if self.repeated_entries else ((self.entries, 1),)
        )


@dataclasses.dataclass(frozen=True)
class TraceSteps:
    """All steps of a trace; without any the whole run is the only one."""

    steps: tuple[Step, ...]  # never empty
    steady_index: int
    counted: int  # steps in the trace
    sets_up: str = ""  # one-time work in the step that the figures describe, as a clause; else empty
    repeated: tuple[int, ...] = ()  # indices of the steps after the first and its warm-up, without one-time work
    added_wait_ns: int = 0  # of the steady step, where the job is bound by its data loader
    averaged: tuple[int, ...] = ()  # indices of the repeated steps that make up whole rounds (`whole_rounds`)

    @property
    def steady(self) -> Step:
        """The step that the figures describe: the median of later steps without one-time work."""
        return dataclasses.replace(self.steps[self.steady_index], added_wait_ns=self.added_wait_ns)

    @property
    def is_steady(self) -> bool:
        """Whether that step is not the first and has no one-time work."""
        return self.steady_index > 0 and not self.sets_up


def find_steps(trace: Trace, timeline: Timeline) -> TraceSteps:
    """Cut a timeline into steps.

    Windows are adjacent and cover the time from the first forward kernel in the loop to the end of the last step. Work
    that overlaps the next step is counted in the step in which it runs.
    """
    device = trace.mask(Kind.WORK, Kind.COLLECTIVE)
    slices = trace.steps()
    if not slices:
        return TraceSteps((Step(slice(0, len(trace)), 0, _last_end(timeline, device, len(trace))),), 0, 0)
    steps: list[Step] = []
    slices[0] = slice(min(trace.manifest.step.begin, slices[0].stop), slices[0].stop)
    start = _first_start(trace, timeline, device, slices[0])
    for entries in slices:
        end = max(start, _last_end(timeline, device, entries.stop))
        steps.append(Step(entries, start, end))
        start = end
    done_once = _find_one_time_work(trace, slices)
    work_ns = _work_ns(trace, timeline, slices)
    is_cut = len(steps) > _WARM_UP_STEPS and _cuts_last(trace, work_ns)
    repeated = tuple(index for index in range(1, len(steps) - is_cut) if not done_once[index])
    repeated = tuple(_after_warm_up(steps, work_ns, repeated))
    shown = _median_index([step.duration_ns for step in steps], repeated)
    averaged = tuple(whole_rounds(repeated, _round_length(trace, work_ns, repeated)))
    added_wait_ns = _added_wait_ns(trace, timeline, steps, averaged, shown)
    return TraceSteps(tuple(steps), shown, len(slices), done_once[shown], repeated, added_wait_ns, averaged)


def _work_ns(trace: Trace, timeline: Timeline, slices: Sequence[slice]) -> Ints:
    """Device time of kernels and copies by step."""
    lasts = np.where(trace.mask(Kind.WORK), timeline.end_ns - timeline.start_ns, 0)
    return np.array([int(lasts[entries].sum()) for entries in slices], np.int64)


def _cuts_last(trace: Trace, work_ns: Ints) -> bool:
    """Whether the last step is only a part of one.

    Steps without optimizers are told apart by the first call of a model or the first backward pass of an iteration.
    What an iteration launches before that counts to the step before, and nothing follows the last one.
    """
    return trace.manifest.step.updates == 0 and bool(work_ns[-1] < (1 - _SAME_WORK) * work_ns[1:-1].min())


def whole_rounds(repeated: Sequence[int], length: int) -> Sequence[int]:
    """The last steps, a multiple of ``length`` of them; all steps if there are fewer than ``length``."""
    rounds = len(repeated) // max(length, 1)
    return repeated[-rounds * length :] if rounds and length else repeated


def _after_warm_up(steps: Sequence[Step], work_ns: Ints, repeated: Sequence[int]) -> Sequence[int]:
    """The repeated steps without the first of them that take longer for no more work: their hosts warm up."""
    if len(repeated) < _WARM_UP_STEPS:
        return repeated
    usual = _median_index([step.duration_ns for step in steps], repeated)
    longest_ns, most_work_ns = _WARM * steps[usual].duration_ns, (1 + _SAME_WORK) * work_ns[usual]
    warm = [steps[index].duration_ns <= longest_ns or work_ns[index] > most_work_ns for index in repeated]
    first = warm.index(True)
    return repeated[first:] if first <= len(repeated) // 2 else repeated


def _round_length(trace: Trace, work_ns: Ints, repeated: Sequence[int]) -> int:
    """Steps after which the sequence begins again: the data loader's workers, or the period of the steps' work."""
    waits = trace.mask(Kind.FETCH_WAIT)
    if waits.any():  # workers deliver in turn
        return workers_per_loader(trace.columns["object"][waits].astype(np.int64))
    work = work_ns[list(repeated)]
    for length in range(1, len(work) // 2 + 1):
        if np.all(np.abs(work[length:] - work[:-length]) <= _SAME_WORK * work[:-length]):
            return length
    return 1


def _added_wait_ns(trace: Trace, timeline: Timeline, steps: Sequence[Step], averaged: Sequence[int], shown: int) -> int:
    """By how much a mean step takes longer than the shown one because its host waits longer for data, ns.

    Workers that are too slow often deliver several batches at once: then no single step takes what a mean one takes.
    0 if the host hardly waits.
    """
    waits = trace.mask(Kind.FETCH_WAIT)
    if not averaged or not waits.any():
        return 0
    waited = np.where(waits, timeline.end_ns - timeline.start_ns, 0)
    mean_ns = statistics.fmean(steps[index].duration_ns for index in averaged)
    mean_wait_ns = statistics.fmean(int(waited[steps[index].entries].sum()) for index in averaged)
    if mean_wait_ns < _LOADER_BOUND * mean_ns:
        return 0
    longer_ns = mean_ns - steps[shown].duration_ns
    longer_wait_ns = mean_wait_ns - int(waited[steps[shown].entries].sum())
    if longer_ns * longer_wait_ns <= 0:
        return 0
    return round(longer_ns if abs(longer_ns) < abs(longer_wait_ns) else longer_wait_ns)


def _find_one_time_work(trace: Trace, slices: list[slice]) -> list[str]:
    """One-time work of each step after the first, as far as a trace shows it."""
    compiling = trace.scopes.index(COMPILING) if COMPILING in trace.scopes else len(trace.scopes)
    compiles = trace.columns["scope"] == compiling
    replayed = trace.mask(Kind.WORK) & (trace.columns["value"] == 1)
    replays = [bool(replayed[entries].any()) for entries in slices]
    first_replay = replays.index(True) if True in replays else 0
    one_time_work = ["CUDA graphs are recorded" * (index == first_replay > 0) for index in range(len(slices))]
    for index, entries in enumerate(slices):
        if index and compiles[entries].any():
            one_time_work[index] = " and ".join(filter(None, ["torch.compile compiles", one_time_work[index]]))
    return one_time_work


def _first_start(trace: Trace, timeline: Timeline, device: np.ndarray, first: slice) -> int:
    """Start of the first step: of its first forward kernel, because earlier work is set-up and belongs to no step.

    Without one, as in replays of graphs, the step starts where the work before its loop ends.
    """
    forward = device[first] & (trace.columns["phase"][first] == Phase.FORWARD)
    starts = timeline.start_ns[first][forward]
    return int(starts.min()) if len(starts) else _last_end(timeline, device, first.start)


def _last_end(timeline: Timeline, device: np.ndarray, stop: int) -> int:
    ends_ns = timeline.end_ns[:stop][device[:stop]]
    return int(ends_ns.max()) if len(ends_ns) else 0


def _median_index(durations: list[int], repeated: Sequence[int]) -> int:
    """Index of the (lower) median of the durations after the first; the later one of equals.

    Steps with one-time work count only if there are no others.
    """
    if len(durations) == 1:
        return 0
    later = repeated or range(1, len(durations))
    median = sorted(durations[index] for index in later)[(len(later) - 1) // 2]
    return max(index for index in later if durations[index] == median)
