"""A trace that is extended equals the one that the program leaves with so many micro-batches."""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.composition.replan.micro_batches import with_micro_batches
from presim.composition.replan.object_names import definitions
from presim.errors import InputError
from presim.trace.builder import TraceBuilder
from presim.trace.schema import COLUMNS, Kind, Phase, Trace
from support.replanned import broken_rules, faults
from support.replanned_programs import MAX_LAG, Block, Event, Program, kernel


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Cycles of work on some streams with events, launches, a data loader, and blocks of all lifetimes."""
    size = draw(st.integers(2, 7))
    slot = st.integers(0, size - 1)
    slots = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.booleans()), min_size=size, max_size=size))
    events = [
        Event(record, wait, lag if wait > record else max(lag, 1), is_host)
        for record, wait, lag, is_host in draw(
            st.lists(st.tuples(slot, slot, st.integers(0, MAX_LAG), st.booleans()), max_size=3)
        )
    ]
    blocks = [
        Block(alloc, free, max(lag, 1) if free < alloc and lag >= 0 else lag, size=512 * units, is_tagged=is_tagged)
        for alloc, free, lag, units, is_tagged in draw(
            st.lists(
                st.tuples(slot, slot, st.integers(-2, MAX_LAG), st.integers(1, 3), st.booleans()),
                max_size=4,
            )
        )
    ]
    return Program(
        slots,
        events,
        blocks,
        workers=draw(st.integers(0, 3)),
        prefetched=draw(st.integers(1, 6)),
        steps=draw(st.integers(1, 3)),
    )


def assert_equal_but_for_numbers(trace: Trace, other: Trace) -> None:
    for name in set(COLUMNS) - {"object"}:
        assert trace.columns[name].tolist() == other.columns[name].tolist(), name
    assert definitions(trace).tolist() == definitions(other).tolist()
    requests, other_requests = (one.columns["object"][one.mask(Kind.FETCH)].tolist() for one in (trace, other))
    assert requests == other_requests


@given(programs(), st.integers(7, 9), st.integers(0, 9))
def test_an_extended_trace_is_the_one_with_so_many_repetitions(program: Program, repetitions: int, added: int) -> None:
    """Entry for entry, up to the numbers of blocks, recordings and launches."""
    captured = program.trace(repetitions)
    (extended,), _ = with_micro_batches([captured], repetitions + added)
    assert not faults(extended)
    assert_equal_but_for_numbers(extended, program.trace(repetitions + added))


@given(programs(), st.integers(1, 5), st.integers(1, 5))
def test_extending_twice_is_extending_once(program: Program, added: int, later_added: int) -> None:
    """A job that was saved by `presim replan --save` may be extended again."""
    (direct,), _ = with_micro_batches([program.trace(7)], 7 + added + later_added)
    (between,), _ = with_micro_batches([program.trace(7)], 7 + added)
    (twice,), _ = with_micro_batches([between], 7 + added + later_added)
    assert_equal_but_for_numbers(twice, direct)


def with_stages(*traces: Trace) -> list[Trace]:
    """Ranks of one job."""
    manifests = [msgspec.structs.replace(trace.manifest, rank=rank) for rank, trace in enumerate(traces)]
    return [dataclasses.replace(trace, manifest=manifest) for trace, manifest in zip(traces, manifests)]


PLAIN = Program([(0, 1, False), (0, 2, False)])


def forward_first(repetitions: int) -> Trace:
    build = TraceBuilder()
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        for _ in range(repetitions):
            build.work(kernel(3), scope="mlp", phase=phase)
    build.step()
    return build.trace()


def pairs(repetitions: int) -> Trace:
    """Two micro-batches take turns, as in interleaved schedules."""
    build = TraceBuilder()
    for _ in range(repetitions):
        for chunk in ("first", "second"):
            build.work(kernel(3), scope=chunk, phase=Phase.FORWARD)
            build.work(kernel(3), scope=chunk, phase=Phase.FORWARD)
            for _ in range(2):
                build.work(kernel(3), scope=chunk, phase=Phase.BACKWARD)
    build.step()
    return build.trace()


REFUSALS = [
    ([PLAIN.trace(6)], 4, "the job was captured with 6 micro-batches and cannot be cut to 4; choose at least 6, or "),
    (
        [pairs(4)],
        11,
        "rank 0 was captured with 8 micro-batches and repeats every 2, so there is no step with 11; choose",
    ),
    (
        [forward_first(6)],
        9,
        "step 0 of rank 0 repeats no cycle of forward and backward passes: no forward and backward",
    ),
    (
        [TraceBuilder().trace()],
        9,
        "this job has no steps, so nothing is known of micro-batches; capture a training scr",
    ),
    (
        with_stages(PLAIN.trace(6), PLAIN.trace(8)),
        9,
        "the steps of this job have 6 and 8 micro-batches; capture it wit",
    ),
    (with_stages(PLAIN.trace(6), PLAIN.trace(1)), 9, "step 0 of rank 1 repeats no cycle of forward and backward passe"),
]


@pytest.mark.parametrize(("traces", "micro_batches", "says"), REFUSALS)
def test_what_cannot_be_extended_is_refused(traces: list[Trace], micro_batches: int, says: str) -> None:
    with pytest.raises(InputError) as error:
        with_micro_batches(traces, micro_batches)
    assert str(error.value).startswith(says)


def test_the_captured_number_changes_nothing() -> None:
    """And nothing is said to be extended."""
    trace = PLAIN.trace(6)
    assert with_micro_batches([trace], 6) == ([trace], [])


def test_micro_batches_that_take_turns_are_extended_together() -> None:
    (extended,), _ = with_micro_batches([pairs(4)], 12)
    assert_equal_but_for_numbers(extended, pairs(6))


def test_first_steps_that_set_up_stay_as_they_are() -> None:
    """The reader is told which."""
    build = TraceBuilder()
    build.work(kernel(9), phase=Phase.FORWARD)
    build.step()
    for _ in range(5):
        build.work(kernel(3), scope="mlp", phase=Phase.FORWARD)
        build.work(kernel(3), scope="mlp", phase=Phase.BACKWARD)
    build.step()
    (extended,), sentences = with_micro_batches([build.trace()], 8)
    assert [step.stop - step.start for step in extended.steps()] == [2, 17]
    assert sentences == [
        "Extended from 5 to 8 micro-batches: the last captured cycle of the pipeline schedule or of gradient "
        "accumulation is repeated. Work outside of it, as for all batches or losses together, is as captured.",
        "Step 0 does not repeat a cycle of micro-batches and stayed as captured.",
    ]


def test_sizes_of_blocks_may_vary() -> None:
    """The allocator leaves a block larger than asked for where the rest would be small; its free has that size."""
    program = dataclasses.replace(PLAIN, blocks=[Block(alloc=0, free=1, lag=2, size=1024)])
    trace = program.trace(7)
    columns = {name: column.copy() for name, column in trace.columns.items()}
    last = np.flatnonzero(trace.mask(Kind.ALLOC))[-1]
    columns["value"][(definitions(trace) == last)] = 1536
    (extended,), _ = with_micro_batches([dataclasses.replace(trace, columns=columns)], 12)
    assert not faults(extended)


def test_accumulated_blocks_get_segments() -> None:
    """More outputs that are kept until the update need more memory than the capture reserved."""
    build = TraceBuilder()
    build.segment(0, 40 << 20)
    for number in range(5):
        build.alloc(number * (8 << 20), 8 << 20, scope="output", phase=Phase.FORWARD)
        build.work(kernel(3), scope="mlp", phase=Phase.FORWARD)
        build.work(kernel(3), scope="mlp", phase=Phase.BACKWARD)
    build.work(kernel(9), phase=Phase.OPTIMIZER)
    for number in range(5):
        build.free(number * (8 << 20), 8 << 20)
    build.step()
    captured = build.trace()
    (extended,), _ = with_micro_batches([captured], 10)
    assert broken_rules(captured, extended) == []
    assert extended.columns["value"][extended.mask(Kind.SEGMENT_ALLOC)].sum() == 80 << 20
