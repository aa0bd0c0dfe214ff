"""Extend a pipeline along the number of its stages, each with the layers that captured ones have."""

from __future__ import annotations

from collections.abc import Sequence

from presim.composition.replan.captured_stage import CapturedStage
from presim.composition.replan.micro_batches import with_micro_batches
from presim.composition.replan.replan_stages import with_stages
from presim.composition.replan.reserved_check import reserved_bytes
from presim.composition.replan.stage_ranks import num_stages
from presim.errors import InputError
from presim.planner.lines.captured_pair import CapturedPair, NoLawError, check_same_work
from presim.trace.coverage import RankCoverage
from presim.trace.job import Job
from presim.trace.schema import Trace
from presim.units import gib

_RESERVED_SHARE = 0.05  # by which reserved memory may differ


def job_with_stages(pair: CapturedPair, world_size: int) -> Job:
    """The larger job on as many ranks, if the smaller one extended to its stages is the same.

    Raises:
        NoLawError: it is not the same.
        InputError: the captures do not show what more stages do.
    """
    worlds = [job.traces[0].manifest.world_size for job in (pair.smaller, pair.larger)]
    stages = [num_stages(job.traces) for job in (pair.smaller, pair.larger)]
    ranks_of_stage = worlds[1] // stages[1]
    if stages[0] * ranks_of_stage != worlds[0] or world_size % ranks_of_stage:
        raise InputError(
            f"the captures have {stages[0]} and {stages[1]} stages on {worlds[0]} and {worlds[1]} ranks, so stages of "
            f"{world_size} ranks are not of one size"
        )
    micro_batches = [_micro_batches(job.traces) for job in (pair.smaller, pair.larger)]
    extended = _with_stages(pair.smaller, stages[1], micro_batches[1])
    check_same_work(extended.traces, pair.larger.traces)
    _check_reserved(extended.traces, pair.larger.traces)
    target = world_size // ranks_of_stage
    further, remainder = divmod((micro_batches[1] - micro_batches[0]) * (target - stages[1]), stages[1] - stages[0])
    if remainder:
        raise InputError(
            f"{micro_batches[0]} and {micro_batches[1]} micro-batches do not say how many {target} stages have"
        )
    return _with_stages(pair.larger, target, micro_batches[1] + further)


def _micro_batches(traces: Sequence[Trace]) -> int:
    return CapturedStage.of(traces[0]).steps[-1].order.micro_batches


def _with_stages(job: Job, stages: int, micro_batches: int) -> Job:
    traces, stands_for, sentences = with_stages(job.traces, stages, job.stands_for, micro_batches)
    if _micro_batches(traces) != micro_batches:
        traces, further = with_micro_batches(traces, micro_batches)
        sentences = [*further, *sentences]
    return Job(traces, stands_for, RankCoverage(), [*sentences, *job.notes])


def _check_reserved(extended: Sequence[Trace], captured: Sequence[Trace]) -> None:
    """Raise `NoLawError` if the extended job reserves another amount of memory than a capture that has segments."""
    planned, reserved = (max(map(reserved_bytes, traces)) for traces in (extended, captured))
    if reserved and abs(planned - reserved) > _RESERVED_SHARE * reserved:
        raise NoLawError(f"{gib(reserved)} are reserved, and {gib(planned)} in the extended job")
