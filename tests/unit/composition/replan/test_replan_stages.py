"""A pipeline that is extended equals the one that runs with so many stages, or is refused by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from presim.composition.replan.replan_stages import with_stages
from presim.errors import InputError
from presim.trace.schema import Kind, Trace
from support.long_cases import examples
from support.pipelines import Pipeline, kernel
from support.replanned import calls, faults, live_blocks


def assert_equal(trace: Trace, other: Trace) -> None:
    assert trace.manifest.groups == other.manifest.groups
    assert (trace.manifest.rank, trace.manifest.world_size) == (other.manifest.rank, other.manifest.world_size)
    assert not faults(trace)
    assert live_blocks(trace) == live_blocks(other)
    for step in range(len(other.steps())):
        assert calls(trace, step) == calls(other, step)


@settings(max_examples=examples(8))
@given(st.integers(4, 6), st.integers(1, 5), st.integers(2, 5))
def test_an_extended_pipeline_is_the_one_with_so_many_stages(stages: int, added: int, later: int) -> None:
    """Call for call with what each refers to, in all stages; the same blocks are live after each step."""
    pipeline = Pipeline(stages, stages + later)
    extended, represented, sentences = with_stages(pipeline.traces(), stages + added, pipeline.represented())
    wanted = Pipeline(stages + added, stages + later + 2 * added)
    assert represented == wanted.represented()
    assert f"Extended from {stages} to {stages + added} pipeline stages" in sentences[0]
    for trace, other in zip(extended, wanted.traces(), strict=True):
        assert_equal(trace, other)


@settings(max_examples=examples(5))
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))
def test_stages_at_the_ends_keep_their_own_layers(head: int, tail: int, added: int) -> None:
    """Layers of another kind may reach over several of the first stages, and fewer layers over the last ones."""
    ends, stages = (head, tail), head + 2 + tail
    pipeline = Pipeline(stages, 2 * stages + 1, ends=ends)
    extended, _, sentences = with_stages(pipeline.traces(), stages + added, {}, ends=ends)
    assert f"With one pass less, that equals stage {head + 1}." in sentences[0]
    for trace, other in zip(extended, Pipeline(stages + added, 2 * (stages + added) + 1, ends=ends).traces()):
        assert_equal(trace, other)


def test_how_one_element_is_accessed_may_differ_between_stages() -> None:
    """By the alignment of its address, as that of a router's loss at the number of its layer."""
    traces = [_with_kernel(trace, trace.manifest.rank) for trace in Pipeline(4, 9).traces()]
    extended, _, _ = with_stages(traces, 6, {})
    assert len(extended) == 6


def _with_kernel(trace: Trace, cast_operands: int) -> Trace:
    """The trace whose kernel of nine elements has one."""
    one = msgspec.structs.replace(kernel(1), cast_operands=cast_operands)
    signatures = tuple(one if signature == kernel(9) else signature for signature in trace.signatures)
    return dataclasses.replace(trace, signatures=signatures)


def test_ranks_of_a_stage_that_differ_are_pipelines_of_their_own() -> None:
    """As those of two contexts: each is extended as it would be alone."""
    first = Pipeline(4, 9).traces()
    second = list(map(_neighbour, first))
    both, _, sentences = with_stages([*second, *first], 6, {})
    alone = [with_stages(traces, 6, {})[0] for traces in (first, second)]
    assert [trace.manifest.rank for trace in both] == list(range(12))
    assert len(sentences) == 1
    for trace, other in zip(both, [trace for pair in zip(*alone) for trace in pair], strict=True):
        assert_equal(trace, other)


def _neighbour(trace: Trace) -> Trace:
    """The trace as that of the other rank of two in a stage."""
    groups = tuple(
        msgspec.structs.replace(group, ranks=tuple(rank ^ 1 for rank in group.ranks)) for group in trace.manifest.groups
    )
    manifest = msgspec.structs.replace(trace.manifest, rank=trace.manifest.rank ^ 1, groups=groups)
    return dataclasses.replace(trace, manifest=manifest)


def test_fewer_micro_batches_than_the_schedule_needs_to_repeat_are_run_as_they_are() -> None:
    pipeline = Pipeline(4, 9)
    extended, _, _ = with_stages(pipeline.traces(), 8, {}, 10)
    for trace, other in zip(extended, Pipeline(8, 10).traces(), strict=True):
        assert_equal(trace, other)


@pytest.mark.parametrize(("micro_batches", "first_fewer"), [(8, 0), (9, 1)])
def test_a_step_may_have_as_many_micro_batches_as_stages(micro_batches: int, first_fewer: int) -> None:
    """Then its first stage runs all forward passes before the first backward one. No step is made with fewer."""
    extended, _, _ = with_stages(Pipeline(4, 9, first_fewer=1).traces(), 8, {}, micro_batches)
    wanted = Pipeline(8, micro_batches, first_fewer=first_fewer)
    for trace, other in zip(extended, wanted.traces(), strict=True):
        assert_equal(trace, other)


def test_roots_of_the_last_stage_stay_there() -> None:
    extended, _, _ = with_stages(Pipeline(4, 8, is_sync_rooted=True).traces(), 6, {})
    for trace, other in zip(extended, Pipeline(6, 12, is_sync_rooted=True).traces(), strict=True):
        assert_equal(trace, other)


@pytest.mark.parametrize("options", [{"has_trial": True}, {"holds_sent": True}])
def test_what_the_schedules_of_pytorch_do_beside_the_passes_is_extended(options: dict[str, bool]) -> None:
    """They learn shapes in a pass before the first step, and hold a message until the pipeline drains."""
    extended, _, _ = with_stages(Pipeline(4, 10, **options).traces(), 6, {})
    for trace, other in zip(extended, Pipeline(6, 14, **options).traces(), strict=True):
        assert_equal(trace, other)


def test_the_number_that_was_captured_leaves_the_job_as_it_is() -> None:
    traces = Pipeline(4, 8).traces()
    extended, represented, sentences = with_stages(traces, 4, {0: [1]})
    assert (extended, represented, sentences) == (traces, {0: [1]}, [])


def test_memory_is_that_of_the_passes_ahead() -> None:
    """The second stage of eight holds seven activations where that of four holds three."""
    second = [with_stages(Pipeline(4, 9).traces(), stages, {})[0][1] for stages in (4, 8)]
    assert [_most_live(trace, 65536) for trace in second] == [3, 7]


def _most_live(trace: Trace, size: int) -> int:
    live, most = 0, 0
    for kind, value in zip(trace.columns["kind"].tolist(), trace.columns["value"].tolist()):
        live += (value == size) * ((kind == Kind.ALLOC) - (kind == Kind.FREE))
        most = max(most, live)
    return most


REFUSALS = [
    (Pipeline(3, 8).traces(), 6, None, "the job was captured with 3 pipeline stages, and the first, the last and two"),
    (Pipeline(6, 9).traces(), 4, None, "the job was captured with 6 pipeline stages and cannot be cut to 4; choose at"),
    (
        Pipeline(4, 9).traces()[:3],
        6,
        None,
        "the job has 4 stages, and the capture has ranks of stages 0, 1, 2; capture",
    ),
    (Pipeline(4, 9).traces(), 12, 11, "12 stages under 1F1B take at least as many micro-batches, and the step would"),
    (
        Pipeline(4, 9, odd_stage=2).traces(),
        6,
        None,
        "a stage does WORK attention (entry 209) where the stage before",
    ),
    (  # the second stage has layers of its own, and is taken for one of those between
        Pipeline(5, 11, ends=(2, 1)).traces(),
        8,
        None,
        "a stage does WORK attention (entry 253) where the stage before",
    ),
    (
        Pipeline(1, 9).traces(),
        6,
        None,
        "no ranks of this job send each other messages as stages of a pipeline do, so it",
    ),
    (
        Pipeline(4, 8, is_forward_first=True).traces(),
        6,
        None,
        "the passes of step 0 of rank 2 are not those of a 1F1B schedule: no forward",
    ),
]


@pytest.mark.parametrize(
    ("traces", "stages", "micro_batches", "message"), REFUSALS, ids=[row[3][:40] for row in REFUSALS]
)
def test_what_shows_no_law_is_refused(
    traces: Sequence[Trace], stages: int, micro_batches: int | None, message: str
) -> None:
    with pytest.raises(InputError) as refusal:
        with_stages(traces, stages, {}, micro_batches)
    assert str(refusal.value).startswith(message)
