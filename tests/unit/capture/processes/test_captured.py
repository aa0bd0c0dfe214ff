"""The outcome of a rank's process."""

from __future__ import annotations

import resource
from unittest import mock

import pytest

from presim.capture.processes.captured import host_limit


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


def test_without_the_note_of_the_emulated_device_there_was_enough() -> None:
    assert host_limit(["stream index=1 device=0 priority=0"]) is None
