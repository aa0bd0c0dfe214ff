"""Blocks of a cycle are freed some repetitions later, or accumulate."""

from __future__ import annotations

import pytest

from presim.composition.replan.block_lives import BlockLife, block_lives, end_of_repetitions
from presim.composition.replan.cycles import Cycle, NotPeriodicError, find_cycle, program_calls
from presim.composition.replan.object_names import definitions
from presim.trace.schema import Trace
from support.replanned_programs import Block, Program

SLOTS = [(0, 1, False), (0, 2, False)]


def cycle_of(trace: Trace) -> Cycle:
    return find_cycle(trace, trace.steps()[0], program_calls(trace, definitions(trace)))


def lives_of(trace: Trace) -> list[BlockLife]:
    defined_at = definitions(trace)
    return block_lives(trace, cycle_of(trace), defined_at)


@pytest.mark.parametrize(("lag", "expected"), [(0, 0), (1, 1), (3, 3), (-1, -1)])
def test_a_life_is_the_repetitions_until_the_free(lag: int, expected: int) -> None:
    (life,) = lives_of(Program(SLOTS, blocks=[Block(alloc=1, free=1, lag=lag)]).trace(7))
    assert life.lag == expected
    assert life.accumulates == (lag == -1) == (life.last_free >= 0)


def test_a_block_that_nothing_frees_has_no_life() -> None:
    assert lives_of(Program(SLOTS, blocks=[Block(alloc=1, free=1, lag=-2)]).trace(7)) == []


def test_frees_after_the_last_call_belong_to_its_repetition() -> None:
    """Else the last captured repetition would hold its blocks while the added ones run."""
    trace = Program(SLOTS, blocks=[Block(alloc=0, free=1, lag=0), Block(alloc=1, free=1, lag=-1)]).trace(7)
    defined_at = definitions(trace)
    cycle = cycle_of(trace)
    assert end_of_repetitions(trace, cycle, lives_of(trace), defined_at) == cycle.end + 1


def test_blocks_that_outlive_all_repetitions_are_refused() -> None:
    """Whether they accumulate or are freed later is not known."""
    trace = Program(SLOTS, blocks=[Block(alloc=1, free=0, lag=3)], block_prologue=True).trace(3)
    with pytest.raises(NotPeriodicError, match=r"the block that entry \d+ allocates lives longer than all repetitions"):
        lives_of(trace)
