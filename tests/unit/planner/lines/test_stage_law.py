"""Two captures with other numbers of stages say what more stages do, if the smaller one extended is the larger one."""

from __future__ import annotations

import dataclasses

import pytest

from presim.errors import InputError
from presim.planner.lines.captured_pair import CapturedPair, NoLawError
from presim.planner.lines.laws import extended_job
from presim.trace.coverage import RankCoverage
from presim.trace.job import Job
from presim.trace.schema import Kind
from support.pipelines import RANKS, Pipeline
from support.replanned import calls


def job(pipeline: Pipeline) -> Job:
    return Job(pipeline.traces(), pipeline.represented(), RankCoverage())


@pytest.mark.parametrize("micro_batches", [(16, 16, 16), (8, 10, 14), (12, 15, 21), (16, 24, 40)])
def test_a_third_number_of_stages_follows(micro_batches: tuple[int, int, int]) -> None:
    """With micro-batches that stay or grow by as many for each stage, also by more than the schedule needs."""
    smaller, larger, wanted = (Pipeline(stages, number) for stages, number in zip((4, 5, 7), micro_batches))
    quantity, extended = extended_job(CapturedPair(job(smaller), job(larger), 4, 5), 7, 7 * RANKS)
    assert quantity == "pipeline stages"
    assert extended.stands_for == wanted.represented()
    for trace, other in zip(extended.traces, wanted.traces(), strict=True):
        assert trace.manifest.groups == other.manifest.groups
        assert calls(trace, 1) == calls(other, 1)


def test_other_layers_in_the_larger_capture_are_no_law() -> None:
    """As with a model that is divided into more stages."""
    larger = job(Pipeline(5, 16, ends=(1, 2)))
    with pytest.raises(NoLawError, match="kernels of a step differ from the extended one"):
        extended_job(CapturedPair(job(Pipeline(4, 16)), larger, 4, 5), 7, 7 * RANKS)


def test_memory_that_the_extended_job_does_not_reserve_is_no_law() -> None:
    """Blocks of messages return late, so captured pipelines reserve more than the allocator, carried out anew."""
    captured = [job(Pipeline(stages, 16)) for stages in (4, 5)]
    late = [dataclasses.replace(each, traces=[*each.traces]) for each in captured]
    for each in late:
        columns = {name: column.copy() for name, column in each.traces[0].columns.items()}
        columns["kind"][0], columns["value"][0] = Kind.SEGMENT_ALLOC, 1 << 40
        each.traces[0] = dataclasses.replace(each.traces[0], columns=columns)
    with pytest.raises(NoLawError, match="are reserved"):
        extended_job(CapturedPair(late[0], late[1], 4, 5), 7, 7 * RANKS)


def test_ranks_that_make_no_whole_stage_are_refused() -> None:
    pair = CapturedPair(job(Pipeline(4, 16)), job(Pipeline(5, 16)), 4, 5)
    with pytest.raises(InputError, match="not of one size"):
        extended_job(pair, 7, 7 * RANKS + 1)
