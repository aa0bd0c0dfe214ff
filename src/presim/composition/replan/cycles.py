"""Finds the cycle of micro-batches in a captured step: what repeats, forward and backward together."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from presim.trace.schema import Kind, Phase, Trace

Ints = NDArray[np.int64]
_CONTENT = ("kind", "phase", "stream", "signature", "scope", "operator", "site")
_LABEL = ("scope", "operator")  # what identifies a kernel on operands of whatever size
# values are times, blocks that the allocator did not split, or what a block holds, which may be seen late
_VARYING = (Kind.HOST_WAIT, Kind.FETCH, Kind.ALLOC, Kind.RETAG)
_OCCURRENCES = 128  # of a kernel in a cycle: pipeline stages times chunks per stage
_LARGEST = 1 << 62
_CANDIDATES = 2048  # periods that are tried


class NotPeriodicError(ValueError):
    """Repetitions of a cycle differ in more than the objects that they name; a clause says in what."""


@dataclasses.dataclass(frozen=True, eq=False)
class Cycle:
    """The repetitions of a step's micro-batches.

    ``calls``: entries of what the program asks for, without frees and segments, whose order is the allocator's
    [repetitions, calls of a cycle]. ``head``: the last calls of a repetition before those, if its first ones differ.
    """

    calls: Ints
    head: Ints
    next_call: int  # the one after them
    micro_batches: int  # in one cycle
    step_micro_batches: int
    are_equal: bool  # all micro-batches of the step do work of the same sizes

    @property
    def end(self) -> int:
        """The entry after the last call."""
        return int(self.calls[-1, -1]) + 1

    def of_equal_chunks(self, chunks: int, micro_batches: int) -> Cycle:
        """The cycle of ``micro_batches``, where passes through equal chunks of layers were counted as micro-batches.

        Chunks of one stage may do the same, while each takes its turn in the schedule and keeps its activations for
        another time.

        Raises:
            NotPeriodicError: there are fewer than two such cycles.
        """
        size = micro_batches * chunks // self.micro_batches * self.calls.shape[1]
        calls = np.concatenate([self.head, self.calls.ravel()])
        num_repetitions = len(calls) // size
        if num_repetitions < 2:
            raise NotPeriodicError(f"{micro_batches} micro-batches of {chunks} chunks of layers do not come twice")
        first = len(calls) - num_repetitions * size
        return dataclasses.replace(
            self,
            calls=calls[first:].reshape(num_repetitions, size),
            head=calls[:first],
            micro_batches=micro_batches,
            step_micro_batches=self.step_micro_batches // chunks,
        )


@dataclasses.dataclass(frozen=True)
class _Region:
    begin: int
    end: int
    period: int


def find_cycle(trace: Trace, step: slice, calls: Ints) -> Cycle:
    """The cycle of a step's micro-batches; ``calls``: see `program_calls`.

    A cycle is the shortest period of the program's calls between the first forward and the last backward pass that
    holds both. With one chunk of layers per stage that is one micro-batch; interleaved schedules repeat after as many
    micro-batches as there are stages.

    Raises:
        NotPeriodicError: forward and backward passes do not alternate at least twice.
    """
    step_calls = calls[np.searchsorted(calls, step.start) : np.searchsorted(calls, step.stop)]
    calls = step_calls
    phases = trace.columns["phase"][calls]
    forward, backward = (np.flatnonzero(phases == phase) for phase in (Phase.FORWARD, Phase.BACKWARD))
    if not len(forward) or not len(backward):
        raise NotPeriodicError("there is no forward or no backward pass")
    calls = calls[forward[0] : backward[-1] + 1]
    phases = trace.columns["phase"][calls]
    contents = content_numbers(trace, calls)
    region = _longest_repetition(contents, _passes(trace, calls), _candidate_periods(contents, phases))
    if region is None:
        raise NotPeriodicError("no forward and backward pass follow others like them")
    first = region.begin + (region.end - region.begin) % region.period
    head, rows = calls[region.begin : first], calls[first : region.end].reshape(-1, region.period)
    next_call = step_calls[np.searchsorted(step_calls, rows[-1, -1]) + 1]  # the step's end at the latest
    return Cycle(rows, head, int(next_call), *_micro_batches(trace, calls, rows[-1]))


def program_calls(trace: Trace, defined_at: Ints) -> Ints:
    """The entries that the program asks for, ascending; the order of the others depends on the allocator's state.

    The allocator records events on streams that used a block; nothing but itself looks at them. ``defined_at``: see
    `presim.composition.replan.object_names.definitions`.
    """
    mask = ~trace.mask(Kind.FREE, Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE, Kind.EVENT_RECORD)
    records = np.flatnonzero(trace.mask(Kind.EVENT_RECORD))
    waits = np.flatnonzero(trace.mask(Kind.STREAM_WAIT, Kind.EVENT_SYNC) & (defined_at >= 0))
    # The last ones of a kind may have nobody who waits for them, so what counts is a record after the same call.
    calls_before = np.maximum.accumulate(np.where(mask, np.arange(len(trace)), 0))[records]
    contents = content_numbers(trace, np.concatenate([records, calls_before])).reshape(2, -1)
    kinds_of_record = contents[0] * (int(contents.max(initial=0)) + 1) + contents[1]
    mask[records] = np.isin(kinds_of_record, kinds_of_record[np.searchsorted(records, defined_at[waits])])
    return np.flatnonzero(mask)


def content_numbers(trace: Trace, entries: Ints, names: Sequence[str] = _CONTENT) -> Ints:
    """A number for each entry, equal for entries of equal content: all but objects, sizes of blocks and times.

    ``names``: of the columns that count as content, besides the values.
    """
    columns = [trace.columns[name][entries].astype(np.int64) for name in names]
    is_varying = np.isin(trace.columns["kind"][entries], _VARYING)
    columns.append(np.where(is_varying, 0, trace.columns["value"][entries].astype(np.int64)))
    numbers: Ints = np.zeros(len(entries), np.int64)
    count = 1  # numbers are less
    for column in columns:  # much faster than np.unique of rows
        least, greatest = (int(bound) for bound in (column.min(initial=0), column.max(initial=0)))
        width = greatest - least + 1
        if count * width > _LARGEST:
            _, numbers = np.unique(numbers, return_inverse=True)
            _, column = np.unique(column, return_inverse=True)
            count, least, width = len(entries), 0, len(entries)
        numbers = numbers * width + (column - least)
        count *= width
    _, numbers = np.unique(numbers, return_inverse=True)
    return numbers


def _longest_repetition(contents: Ints, passes: Sequence[Ints], periods: Iterable[int]) -> _Region | None:
    """The longest repetition by one of the periods whose every period holds most of both passes.

    ``passes``: see `_passes`. All forward passes before all backward ones make no cycle: the loops repeat one of them.
    """
    longest: _Region | None = None
    longest_run = 0
    for period in periods:
        equal = np.concatenate([[False], contents[period:] == contents[:-period], [False]])
        changes = np.flatnonzero(equal[1:] != equal[:-1])
        for begin, end in zip(changes[::2].tolist(), changes[1::2].tolist()):
            if end - begin < period or end - begin <= longest_run:
                continue
            if all(_holds_most(kernels, begin, end + period, period) for kernels in passes):
                longest, longest_run = _Region(begin, end + period, period), end - begin
    return longest


def _passes(trace: Trace, calls: Ints) -> list[Ints]:
    """For forward and backward passes, what kernel each call launches in it, -1 for none [calls]."""
    is_work, phases = trace.mask(Kind.WORK)[calls], trace.columns["phase"][calls]
    labels = content_numbers(trace, calls, _LABEL)
    return [np.where(is_work & (phases == phase), labels, -1) for phase in (Phase.FORWARD, Phase.BACKWARD)]


def _holds_most(kernels: Ints, begin: int, end: int, period: int) -> bool:
    """Whether repetitions run most of the kernels of a pass, or a single one most of the different ones."""
    launched, launched_in_period = (np.unique(part[part >= 0]) for part in (kernels, kernels[end - period : end]))
    launches, launches_in_region = (int((part >= 0).sum()) for part in (kernels, kernels[begin:end]))
    return 2 * len(launched_in_period) > len(launched) or 2 * launches_in_region > launches


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
        per_cycle = range(1, min(_OCCURRENCES, len(positions) - 1) + 1)
        distances = np.unique(np.concatenate([positions[count:] - positions[:-count] for count in per_cycle]))
        periods.update(distances[:_CANDIDATES].tolist())
    return sorted(period for period in periods if period <= len(contents) // 2)


def _micro_batches(trace: Trace, step_calls: Ints, cycle_calls: Ints) -> tuple[int, int, bool]:
    """Micro-batches of a cycle and of the step, and whether all are equal.

    A cycle runs each kernel a multiple of the number of its micro-batches, and some kernel exactly that often. In the
    step, most kernels of backward passes run as often more as it has more micro-batches, on whatever sizes. Evaluation
    has forward passes, too.
    """
    is_work = trace.mask(Kind.WORK)
    _, counts = np.unique(content_numbers(trace, cycle_calls[is_work[cycle_calls]]), return_counts=True)
    in_cycle = math.gcd(*counts.tolist())
    is_backward = is_work & (trace.columns["phase"] == Phase.BACKWARD)
    calls = step_calls[is_backward[step_calls]]
    if not len(calls):
        raise NotPeriodicError("backward passes have no device work")
    is_in_cycle = np.isin(calls, cycle_calls)
    num_cycles, num_equal_cycles = (
        _ratio(content_numbers(trace, calls, names), is_in_cycle, in_cycle) for names in (_LABEL, _CONTENT)
    )
    return in_cycle, num_cycles, num_cycles == num_equal_cycles


def _ratio(contents: Ints, is_in_cycle: NDArray[np.bool_], in_cycle: int) -> int:
    """How often most contents of a cycle occur altogether, where they occur ``in_cycle`` times in the cycle."""
    numbers, counts = np.unique(contents[is_in_cycle], return_counts=True)
    ratios, frequencies = np.unique(np.bincount(contents)[numbers] * in_cycle // counts, return_counts=True)
    return int(ratios[frequencies.argmax()])
