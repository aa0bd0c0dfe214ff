"""Ranks that keep others waiting are waited for, as long as they do anything."""

from __future__ import annotations

import re

import pytest

from presim.errors import CaptureError, HangError
from presim.evaluation.live.stall_timeout import StallTimeout


class World:
    """A clock that is set by hand, and CPU time by rank."""

    def __init__(self) -> None:
        self.now = 0.0
        self.spent = {0: 1, 1: 1}

    def patience(self) -> StallTimeout:
        return StallTimeout(self.spent.__getitem__, lambda: self.now)


def test_a_rank_that_works_is_waited_for_without_end() -> None:
    world = World()
    patience = world.patience()
    for minute in range(60):
        world.now, world.spent[1] = 60.0 * minute + 60, minute
        patience.wait_for([1])


def test_one_that_does_nothing_and_waits_for_nobody_ends_the_run() -> None:
    """In a sentence that names it."""
    world = World()
    patience = world.patience()
    for world.now in (10.0, 70.0, 130.0):
        patience.wait_for([1])
    world.now = 131.0
    with pytest.raises(CaptureError, match=r"rank 1 has used no CPU for 120 s .* run without --live"):
        patience.wait_for([1])


def test_time_in_which_nobody_waited_for_it_does_not_count() -> None:
    world = World()
    patience = world.patience()
    for world.now, ranks in ((10.0, [1]), (70.0, [0]), (131.0, [1]), (200.0, [1])):
        patience.wait_for(ranks)


def test_ranks_that_all_wait_are_given_a_moment() -> None:
    world = World()
    patience = world.patience()
    patience.check_stuck(True, list)
    world.now = 4.0
    patience.check_stuck(False, list)
    world.now = 6.0
    patience.check_stuck(True, list)
    world.now = 10.0
    patience.check_stuck(True, list)
    world.now = 11.5
    waits = "rank 0 at train.py:7: all_reduce of 8 bytes on 'dp' (ranks 0, 1)"
    hangs = "the job would hang: with a live clock every rank waits for another; "
    with pytest.raises(HangError, match=re.escape(f"{hangs}they wait in {waits}. ")):
        patience.check_stuck(True, lambda: [waits])
    with pytest.raises(HangError, match=re.escape(f"{hangs}run without --live to see where. ")):
        patience.check_stuck(True, list)
