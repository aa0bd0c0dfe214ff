"""Finds the cycle of micro-batches in a captured step: what repeats, forward and backward together."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from presim.trace.schema import Kind, Phase, Trace

Ints = NDArray[np.int64]
_CONTENT = ("kind", "phase", "stream", "signature", "scope", "operator", "site")
_VARYING = (Kind.HOST_WAIT, Kind.FETCH, Kind.ALLOC)  # values are times, or blocks that the allocator did not split
_CANDIDATES = 2048  # periods that are tried


@dataclasses.dataclass(frozen=True, eq=False)
class Cycle:
    """The repetitions of a step's micro-batches.

    ``calls``: entries of what the program asks for, without frees and segments, whose order is the allocator's
    [repetitions, calls of a cycle].
    """

    calls: Ints
    micro_batches: int  # in one cycle
    step_micro_batches: int

    @property
    def end(self) -> int:
        """The entry after the last repetition."""
        return int(self.calls[-1, -1]) + 1


@dataclasses.dataclass(frozen=True)
class _Region:
    begin: int
    end: int
    period: int


def find_cycle(trace: Trace, step: slice, defined_at: Ints) -> Cycle | None:
    """The cycle of a step's micro-batches; None if forward and backward passes do not alternate at least twice.

    A cycle is the shortest period of the program's calls between the first forward and the last backward pass that
    holds both. With one chunk of layers per stage that is one micro-batch; interleaved schedules repeat after as many
    micro-batches as there are stages. ``defined_at``: see `presim.replan.object_names.definitions`.
    """
    calls = step.start + np.flatnonzero(program_calls(trace, defined_at)[step])
    phases = trace.columns["phase"][calls]
    forward, backward = (np.flatnonzero(phases == phase) for phase in (Phase.FORWARD, Phase.BACKWARD))
    if not len(forward) or not len(backward):
        return None
    calls = calls[forward[0] : backward[-1] + 1]
    phases = trace.columns["phase"][calls]
    contents = content_numbers(trace, calls)
    region = _longest_repetition(contents, phases, _candidate_periods(contents, phases))
    if region is None:
        return None
    first = region.begin + (region.end - region.begin) % region.period
    is_forward_work = (trace.columns["kind"][calls] == Kind.WORK) & (phases == Phase.FORWARD)
    cycle = slice(region.end - region.period, region.end)
    return Cycle(
        calls[first : region.end].reshape(-1, region.period),
        *_micro_batches(contents[is_forward_work], contents[cycle][is_forward_work[cycle]]),
    )


def program_calls(trace: Trace, defined_at: Ints) -> NDArray[np.bool_]:
    """Mask of the entries that the program asks for; the order of the others depends on the allocator's state.

    The allocator records events on streams that used a block; nothing but itself looks at them.
    """
    waits = trace.mask(Kind.STREAM_WAIT, Kind.EVENT_SYNC)
    is_awaited = np.zeros(len(trace) + 1, np.bool_)  # the last one is for waits of which no recording is known
    is_awaited[defined_at[waits]] = True
    is_asked = ~trace.mask(Kind.FREE, Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE, Kind.EVENT_RECORD)
    mask: NDArray[np.bool_] = is_asked | trace.mask(Kind.EVENT_RECORD) & is_awaited[:-1]
    return mask


def content_numbers(trace: Trace, entries: Ints) -> Ints:
    """A number for each entry, equal for entries of equal content: all but objects, sizes of blocks and times."""
    columns = [trace.columns[name][entries].astype(np.int64) for name in _CONTENT]
    is_varying = np.isin(trace.columns["kind"][entries], _VARYING)
    columns.append(np.where(is_varying, 0, trace.columns["value"][entries].astype(np.int64)))
    numbers: Ints = np.zeros(len(entries), np.int64)
    for column in columns:  # much faster than np.unique of rows
        _, codes = np.unique(column, return_inverse=True)
        _, numbers = np.unique(numbers * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)
    return numbers


def _longest_repetition(contents: Ints, phases: NDArray[np.generic], periods: Iterable[int]) -> _Region | None:
    """The longest repetition by one of the periods whose every period holds forward and backward passes."""
    longest: _Region | None = None
    longest_run = 0
    for period in periods:
        equal = np.concatenate([[False], contents[period:] == contents[:-period], [False]])
        changes = np.flatnonzero(equal[1:] != equal[:-1])
        for begin, end in zip(changes[::2].tolist(), changes[1::2].tolist()):
            if end - begin < period or end - begin <= longest_run:
                continue
            if {int(Phase.FORWARD), int(Phase.BACKWARD)} <= set(phases[end : end + period].tolist()):
                longest, longest_run = _Region(begin, end + period, period), end - begin
    return longest


def _candidate_periods(contents: Ints, phases: NDArray[np.generic]) -> list[int]:
    """Distances between equal forward work that may be a period: of the rarest content in each of three places."""
    counts = np.bincount(contents)
    periods: set[int] = set()
    is_forward = phases == Phase.FORWARD
    for quarter in (1, 2, 3):
        middle = quarter * len(contents) // 4
        nearby = slice(max(0, middle - len(contents) // 8), middle + len(contents) // 8 + 1)
        repeated = [number for number in np.unique(contents[nearby][is_forward[nearby]]).tolist() if counts[number] > 1]
        if not repeated:
            continue
        positions = np.flatnonzero(contents == min(repeated, key=lambda number: counts[number]))
        distances = np.unique(np.concatenate([np.diff(positions), positions[1:] - positions[0]]))
        periods.update(distances[:_CANDIDATES].tolist())
    return sorted(period for period in periods if period <= len(contents) // 2)


def _micro_batches(step_contents: Ints, cycle_contents: Ints) -> tuple[int, int]:
    """Micro-batches of the cycle and of the step, by the contents of their forward work.

    Each forward kernel runs a multiple of the number of micro-batches, and some kernel exactly that often.
    """
    numbers, counts = np.unique(cycle_contents, return_counts=True)
    in_cycle = math.gcd(*counts.tolist())
    step_counts = np.bincount(step_contents, minlength=int(numbers.max()) + 1)[numbers]
    ratios, frequencies = np.unique(step_counts * in_cycle // counts, return_counts=True)
    return in_cycle, int(ratios[frequencies.argmax()])
