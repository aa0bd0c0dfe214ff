"""Time a loop of small operators on the CPU now and then, to tell how slow this machine is at a script's host work.

Other processes slow a script down by up to five times without taking CPU time from it: they share its caches and, as
neighbours of a virtual machine, its cores. A loop of the same kind of work is slowed down alike
(docs/decisions/host-time.md).
"""

from __future__ import annotations

import statistics
import threading
from collections import deque
from typing import Protocol

import torch

# CPU time of the loop on the reference host, ns. With this value, a script of eager operators takes as long in eleven
# captures at loads of 4 to 25, on average, as it took on an idle machine (docs/decisions/host-time.md).
REFERENCE_NS = 640_000
_ADDITIONS = 400  # in the loop, and as many multiplications: long enough to be interrupted as often as the script
_EVERY_NS = 40_000_000  # CPU time of the thread between two loops
_REMEMBERED = 9  # latest times of the loop, of which the median counts


class Recorder(Protocol):
    """What is used of `presim.capture.script.hook.Hook`."""

    def own_work_begins(self) -> None:
        """What follows is not the script's work."""

    def own_work_ends(self) -> None:
        """What follows is the script's work again."""

    def thread_ns(self) -> int:
        """CPU time of this thread, ns."""

    def set_host_slowdown(self, slowdown: float) -> None:
        """Divide the script's CPU time by ``slowdown`` from now on."""


class HostSpeed:
    """Tells the recorder of one process how slow the machine is. Only the thread that made it measures."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._thread = threading.get_ident()
        self._times_ns: deque[int] = deque(maxlen=_REMEMBERED)
        self._last_ns = -_EVERY_NS
        self._sum, self._term = (torch.ones(8, device="cpu", dtype=torch.float32) for _ in range(2))

    def measure_if_due(self) -> None:
        """Run the loop, unless it ran lately or the script observes operators itself."""
        if threading.get_ident() != self._thread or _would_be_seen():
            return
        self._recorder.own_work_begins()
        try:
            if self._recorder.thread_ns() - self._last_ns >= _EVERY_NS:
                self._times_ns.append(self._loop_ns())
                self._last_ns = self._recorder.thread_ns()
                self._recorder.set_host_slowdown(statistics.median(self._times_ns) / REFERENCE_NS)
        finally:
            self._recorder.own_work_ends()

    def _loop_ns(self) -> int:
        with torch.inference_mode(), torch._C.DisableTorchFunction():
            start_ns = self._recorder.thread_ns()
            value = self._sum
            for _ in range(_ADDITIONS):
                value = (value + self._term).mul(0.5)
            return self._recorder.thread_ns() - start_ns


def _would_be_seen() -> bool:
    """Whether a profiler or a dispatch mode of the script would see the loop, or a compiler traces."""
    return bool(
        torch._C._len_torch_dispatch_stack() or torch._C._autograd._profiler_enabled() or torch.compiler.is_compiling()
    )
