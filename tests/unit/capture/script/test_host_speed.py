"""A loop of operators tells the recorder how slow the machine is."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import emulated

pytestmark = pytest.mark.torch_cuda

CODE = """
import torch
from presim.capture.script.host_speed import REFERENCE_NS, HostSpeed


class FakeRecorder:  # each loop takes the next of some times; the script works between calls of HostSpeed
    def __init__(self, loops, step_ns=100_000_000):
        self.slowdowns, self.depth, self.reads, self.now_ns = [], 0, 0, 0
        self.loops, self.step_ns = iter(loops), step_ns

    def own_work_begins(self):
        self.depth, self.reads, self.now_ns = self.depth + 1, 0, self.now_ns + self.step_ns

    def own_work_ends(self):
        self.depth -= 1

    def thread_ns(self):
        assert self.depth == 1
        self.reads += 1
        if self.reads == 3:  # whether it is due, its begin, its end
            self.now_ns += round(next(self.loops) * REFERENCE_NS)
        return self.now_ns

    def set_host_slowdown(self, slowdown):
        self.slowdowns.append(slowdown)


def slowdowns(loops, calls, step_ns=100_000_000):
    recorder = FakeRecorder(loops, step_ns)
    speed = HostSpeed(recorder)
    for _ in range(calls):
        speed.measure_if_due()
    assert recorder.depth == 0
    return recorder.slowdowns


results["median"] = slowdowns([2, 8, 3], 3)
results["forgotten"] = slowdowns([1] * 9 + [4] * 9, 18)
results["seldom"] = slowdowns([1] * 10, 9, step_ns=10_000_000)
recorder = FakeRecorder([1, 1])
speed = HostSpeed(recorder)
with torch.device("meta"), torch.enable_grad():
    speed.measure_if_due()
with torch.autograd.profiler.profile():
    speed.measure_if_due()
results["modes"] = recorder.slowdowns
"""


def test_the_slowdown_is_the_median_of_the_latest_loops_run_now_and_then(tmp_path: Path) -> None:
    """Old loops are forgotten; the script's default device does not matter; a profiler does not see the loop."""
    emulated.require_cuda_torch()
    results = emulated.run(CODE, tmp_path).results
    assert results["median"] == [2, 5, 3]
    assert results["forgotten"] == [1.0] * 13 + [4.0] * 5
    assert len(results["seldom"]) == 3  # type: ignore[arg-type]  # at once, then after 40 ms of CPU time each
    assert results["modes"] == [1]
