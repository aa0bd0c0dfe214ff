"""Two captures that differ in the value of one knob, and whether one of them, extended, does the work of the other."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence

from presim.composition.capture_comparison import compare
from presim.errors import InputError
from presim.trace.job import Job
from presim.trace.schema import Kind, Trace

# Kernels of a step that may differ between an extended and a captured job: a stack of all losses and its mean
_OTHER_KERNELS, _OTHER_SHARE = 8, 0.002


class NoLawError(InputError):
    """The captures show that nothing along this knob follows from fewer."""


@dataclasses.dataclass(frozen=True)
class CapturedPair:
    """Two jobs that differ in the value of one knob."""

    smaller: Job
    larger: Job
    smaller_value: int
    larger_value: int


def _by_rank(traces: Sequence[Trace]) -> dict[int, Trace]:
    return {trace.manifest.rank: trace for trace in traces}


def check_same_work(extended_traces: Sequence[Trace], captured_traces: Sequence[Trace]) -> None:
    """Raise if the last steps differ in more than a few kernels, such as a mean of all losses.

    Raises:
        NoLawError: names the first difference.
    """
    extended, captured = _by_rank(extended_traces), _by_rank(captured_traces)
    if extended.keys() != captured.keys():
        raise NoLawError("the captures are of different ranks")
    agreement = compare(captured, extended)
    if agreement.differences:
        first = agreement.differences[0]
        raise NoLawError(
            f"{first.signature} comes {first.captured} times in a step, and {first.composed} times in the extended one"
        )
    for rank, trace in captured.items():
        counts, extended_counts = _kernels(trace), _kernels(extended[rank])
        differing = sum(((counts - extended_counts) + (extended_counts - counts)).values())
        if differing > max(2 * _OTHER_KERNELS, _OTHER_SHARE * counts.total()):
            raise NoLawError(f"{differing} of {counts.total():,} kernels of a step differ from the extended one")


def _kernels(trace: Trace) -> collections.Counter[object]:
    """How often each kind of device work comes in the last step."""
    steps = trace.steps()
    is_work = trace.mask(Kind.WORK)
    indices = trace.columns["signature"][steps[-1]][is_work[steps[-1]]].tolist() if steps else []
    by_index = collections.Counter(indices)
    counts: collections.Counter[object] = collections.Counter()
    for index, count in by_index.items():
        if index >= 0:
            counts[trace.signatures[index]] += count
    return counts
