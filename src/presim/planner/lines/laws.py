"""Extend a job along the number of its ranks, layers or micro-batches, by two captures that confirm how.

What a knob means is seen in the captures, not taken from its name: worlds of different size, as many layers as its
values, or micro-batches in proportion to them.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence

from presim.composition.capture_comparison import compare
from presim.composition.replan.layer_names import layer_list
from presim.composition.replan.micro_batches import captured_micro_batches, with_micro_batches
from presim.composition.replan.replan_layers import with_layers
from presim.composition.replan.replan_ranks import with_ranks
from presim.errors import InputError
from presim.trace.coverage import RankCoverage
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


def extended_job(pair: CapturedPair, value: int, world_size: int) -> tuple[str, Job]:
    """What the knob is the number of, and the job with a larger value of it on so many ranks.

    Raises:
        NoLawError: the knob changes something else.
        InputError: the captures do not confirm a law.
    """
    worlds = [job.traces[0].manifest.world_size for job in (pair.smaller, pair.larger)]
    if worlds[0] != worlds[1]:
        traces, stands_for, sentences = with_ranks(
            pair.smaller.traces, pair.larger.traces, pair.larger.stands_for, world_size
        )
        return "ranks", Job(traces, stands_for, RankCoverage(), [*sentences, *pair.larger.notes])
    if world_size != worlds[0]:
        raise NoLawError(f"both captures have {worlds[0]} ranks, and the point {world_size}")
    layers = [_layers(job.traces) for job in (pair.smaller, pair.larger)]
    if layers == [pair.smaller_value, pair.larger_value]:
        traces, sentences = with_layers(pair.smaller.traces, value, pair.larger.traces)
        return "layers", _on_same_ranks(pair.larger, traces, sentences)
    return "micro-batches", _with_micro_batches(pair, value)


def _layers(traces: Sequence[Trace]) -> int:
    return len({number for trace in traces for number in layer_list(trace)[1]})


def _on_same_ranks(job: Job, traces: Sequence[Trace], sentences: Sequence[str]) -> Job:
    return dataclasses.replace(job, traces=traces, notes=[*sentences, *job.notes])


def _with_micro_batches(pair: CapturedPair, value: int) -> Job:
    """The larger job with micro-batches in proportion to the value, if the smaller one extended to it is the same."""
    captured = [captured_micro_batches(job.traces) for job in (pair.smaller, pair.larger)]
    if captured[0] == captured[1] or captured[0] * pair.larger_value != captured[1] * pair.smaller_value:
        raise NoLawError(
            f"the captures have {captured[0]} and {captured[1]} micro-batches, which do not grow as the knob from "
            f"{pair.smaller_value} to {pair.larger_value}, and the same number of ranks"
        )
    micro_batches, remainder = divmod(captured[1] * value, pair.larger_value)
    if remainder:
        raise InputError(f"{captured[1]} x {value} / {pair.larger_value} is no whole number of micro-batches")
    extended, _ = with_micro_batches(pair.smaller.traces, captured[1])
    _check_same_work(_by_rank(extended), _by_rank(pair.larger.traces))
    traces, sentences = with_micro_batches(pair.larger.traces, micro_batches)
    return _on_same_ranks(pair.larger, traces, sentences)


def _by_rank(traces: Sequence[Trace]) -> dict[int, Trace]:
    return {trace.manifest.rank: trace for trace in traces}


def _check_same_work(extended: Mapping[int, Trace], captured: Mapping[int, Trace]) -> None:
    """Raise if the last steps differ in more than a few kernels, such as a mean of all losses.

    Raises:
        NoLawError: names the first difference.
    """
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
