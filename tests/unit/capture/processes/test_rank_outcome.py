"""The outcome of a rank's process."""

from __future__ import annotations

import resource
from pathlib import Path
from unittest import mock

import pytest

from presim.capture.processes.rank_outcome import CapturedRank, host_limit, stop_alike
from presim.capture.script.control import ScriptOutcome
from presim.capture.steps.stopping import Stop


@pytest.mark.parametrize(
    ("limit", "cause"),
    [(3 << 30, "ulimit -v allows 3.00 GiB"), (resource.RLIM_INFINITY, "its memory is exhausted")],
)
def test_a_limit_of_this_machine_is_named_as_such(limit: int, cause: str) -> None:
    """With the first size that was refused, the limit and what to do; never as the GPU's memory."""
    with mock.patch("resource.getrlimit", return_value=(limit, limit)):
        assert host_limit(["stream index=1", "host-limit bytes=2147483648", "host-limit bytes=4096"]) == (
            "this machine, not the GPU, ran out of memory: 2.00 GiB of addresses for the emulated device could not be "
            f"reserved ({cause}); the emulation reserves as many as the program allocates: raise the limit"
        )


def test_ranks_that_ran_ahead_end_where_the_lowest_was_stopped() -> None:
    """One had reached its own bound, one the end of the script; one that raised has its own end."""
    ends = {0: ("stopped", 12), 1: ("stopped", 12), 2: ("stopped", 48), 3: ("ok", 0), 4: ("raised", 0)}
    captured = [
        CapturedRank(rank, Path(), ScriptOutcome(exit, end=Stop(steps))) for rank, (exit, steps) in ends.items()
    ]
    stop_alike(captured)
    assert [rank.outcome.end for rank in captured] == [Stop(12)] * 4 + [Stop(0)]
    assert [rank.outcome.exit for rank in captured] == ["stopped"] * 4 + ["raised"]


def test_ranks_of_a_job_that_ran_to_its_end_keep_their_ends() -> None:
    captured = [CapturedRank(rank, Path(), ScriptOutcome(end=Stop(0))) for rank in range(2)]
    stop_alike(captured)
    assert [(rank.outcome.exit, rank.outcome.end) for rank in captured] == [("ok", Stop(0))] * 2


def test_without_the_note_of_the_emulated_device_there_was_enough() -> None:
    assert host_limit(["stream index=1 device=0 priority=0"]) is None
