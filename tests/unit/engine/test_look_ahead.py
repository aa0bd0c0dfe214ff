"""What certainly passes before an op ends, and which launches a host can issue until then."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from presim.engine.look_ahead import Bound, bound_until
from presim.engine.state import RECORD, RUN, WAIT

Columns = Mapping[str, NDArray[np.int64]]
COMPUTE_SLOT, SIDE_SLOT = 0, 1


def streams(*compute: int, running_ns: int = 0) -> Columns:
    """Work on one stream, its recording after each op, and a second stream that waits for the last but one.

    The ops are: work of each duration and its recording, in turn; then wait, 50 ns of work and recording.
    ``running_ns``: left of an op of the first stream that has started.
    """
    codes, durations = [], []
    for duration in compute:
        codes += [RUN, RECORD]
        durations += [duration, 0]
    first_of_side = len(codes)
    codes += [WAIT, RUN, RECORD]
    durations += [0, 50, 0]
    running = len(codes)
    codes, durations = [*codes, RUN], [*durations, running_ns]
    count = len(codes)
    unset = np.full(count, -1)
    following = np.arange(1, count + 1)
    following[[first_of_side - 1, running - 1, running]] = -1
    target = unset.copy()
    target[first_of_side] = first_of_side - 3
    work_left = np.zeros(count, np.int64)
    work_left[running] = running_ns
    return {
        "code": np.array(codes), "duration": np.array(durations), "following": following, "target": target,
        "joins": np.zeros(count, np.int64), "end": unset.copy(),
        "slot": np.array([COMPUTE_SLOT] * first_of_side + [SIDE_SLOT] * 3 + [COMPUTE_SLOT]),
        "head": np.array([0, first_of_side]), "slot_rank": np.array([0, 0]),
        "active_first": np.array([running if running_ns else -1]), "active_next": unset.copy(),
        "lead": np.arange(count), "since": np.zeros(count, np.int64), "work_left": work_left,
    }  # fmt: skip


def test_an_op_ends_after_the_work_before_it_on_its_stream() -> None:
    assert bound_until(streams(100, 100, 100), 5, 0, SIDE_SLOT, 4).least_ns == 300


def test_what_runs_counts_as_far_as_it_is_left() -> None:
    assert bound_until(streams(100, running_ns=70), 1, 20, SIDE_SLOT, 4).least_ns == 50 + 100


@pytest.mark.parametrize(("running_ns", "least_ns"), [(70, 100), (130, 130)])
def test_what_is_of_the_launch_that_runs_does_not_wait_for_it(running_ns: int, least_ns: int) -> None:
    """A send that has started and a receive of the same launch run beside each other."""
    columns = streams(100, running_ns=running_ns)
    columns["joins"][0] = 1
    assert bound_until(columns, 1, 0, SIDE_SLOT, 4).least_ns == least_ns


def test_a_stream_that_waits_ends_after_what_it_waits_for() -> None:
    columns = streams(100, 100, 100)
    assert bound_until(columns, 8, 0, SIDE_SLOT, 4).least_ns == 200 + 50


@pytest.mark.parametrize(("share", "launches"), [(2, 2), (4, 2), (250, 3)])
def test_launches_wait_for_ops_that_end_long_before(share: int, launches: int) -> None:
    """Recordings are launches, too: after two of them 150 of the 250 ns still pass, after three 50 ns."""
    assert bound_until(streams(100, 100, 100), 8, 0, COMPUTE_SLOT, share) == Bound(250, launches)


def test_launches_of_a_stream_that_does_not_lead_there_say_nothing() -> None:
    assert bound_until(streams(100, 100), 3, 0, SIDE_SLOT, 4) == Bound(200, 0)


def test_what_has_ended_later_than_the_question_ends_then() -> None:
    columns = streams(100)
    columns["end"][1] = 130
    assert bound_until(columns, 1, 100, COMPUTE_SLOT, 4) == Bound(30, 0)
