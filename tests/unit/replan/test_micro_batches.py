"""A trace that is extended equals the one that the program leaves with so many micro-batches."""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.errors import InputError
from presim.replan.micro_batches import with_micro_batches
from presim.replan.object_names import definitions
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
