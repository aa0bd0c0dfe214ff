"""Extend a job along the number of its ranks, stages, layers or micro-batches, by two captures that confirm how.

What a knob means is seen in the captures, not taken from its name: worlds of different size, with as many kinds of
ranks or with more, as many layers as its values, or micro-batches in proportion to them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from presim.composition.replan.layer_names import layer_list
from presim.composition.replan.micro_batches import captured_micro_batches, with_micro_batches
from presim.composition.replan.replan_layers import with_layers
from presim.composition.replan.replan_ranks import with_ranks
from presim.errors import InputError
from presim.planner.lines.captured_pair import CapturedPair, NoLawError, check_same_work
from presim.planner.lines.stage_law import job_with_stages
from presim.trace.coverage import RankCoverage
from presim.trace.job import Job
from presim.trace.schema import Trace


def extended_job(pair: CapturedPair, value: int, world_size: int) -> tuple[str, Job]:
    """What the knob is the number of, and the job with a larger value of it on so many ranks.

    Raises:
        NoLawError: the knob changes something else.
        InputError: the captures do not confirm a law.
    """
    worlds = [job.traces[0].manifest.world_size for job in (pair.smaller, pair.larger)]
    if worlds[0] != worlds[1] and len(pair.smaller.traces) != len(pair.larger.traces):
        return "pipeline stages", job_with_stages(pair, world_size)
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
    check_same_work(extended, pair.larger.traces)
    traces, sentences = with_micro_batches(pair.larger.traces, micro_batches)
    return _on_same_ranks(pair.larger, traces, sentences)
