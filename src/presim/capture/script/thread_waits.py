"""Measure how long the script's main thread waits in its steps for threads and processes of its own.

What these do is not simulated: only the main thread's CPU time is, and the workers of PyTorch's data loader. Python's
queues, events, futures, pools and pipes wait in the few functions that are watched here. Bare locks, semaphores of
`multiprocessing` and event loops wait in C code, where this module does not see them.
"""

from __future__ import annotations

import functools
import os
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from multiprocessing import connection, process, synchronize
from types import FrameType
from typing import Any

from presim.capture.script.clock_reads import LIVE
from presim.capture.script.current_line import is_own, is_python, is_torch
from presim.capture.script.real_clock import now_ns
from presim.units import seconds

WATCHED: tuple[tuple[Any, str], ...] = (
    (threading.Condition, "wait"),  # also of queues, events, semaphores, barriers, futures and the results of pools
    (threading.Thread, "join"),
    (connection, "wait"),  # also of `Connection.poll`, and of queues with a timeout
    (connection.Connection, "_recv_bytes"),  # of everything that receives
    (synchronize.Condition, "wait"),
    (process.BaseProcess, "join"),
)
_SHORTEST_NS = 20_000  # shorter waits are dropped: finding the line takes a few microseconds
_LEAST_SHARE = 0.1  # of the wall time of steps
_LEAST_NS = 1_000_000  # a step
_MOST_NAMED = 3  # in the sentence


class ThreadWaits:
    """The waits of the thread that creates this. ``add_own_time`` gets the nanoseconds spent on finding lines."""

    def __init__(self, add_own_time: Callable[[int], object] = lambda duration_ns: None) -> None:
        self._add_own_time = add_own_time
        self._waits: list[tuple[int, int, str]] = []  # begin on `now_ns`, waiting time in ns, call and line
        self._thread = threading.get_ident()
        self._is_waiting = False

    def install(self) -> None:
        """Watch waits from here on, unless clocks are simulated."""
        if LIVE in os.environ:
            return
        for owner, name in WATCHED:
            setattr(owner, name, self._watched(getattr(owner, name)))
        # A method of a type in C cannot be replaced, but the type can.
        get = self._watched(queue.SimpleQueue.get)
        queue.SimpleQueue = type("SimpleQueue", (queue.SimpleQueue,), {"get": get, "__module__": "_queue"})  # type: ignore[assignment, misc]
        os.register_at_fork(after_in_child=self._end)

    def notes(self, step_end_ns: Sequence[int]) -> list[str]:
        """A sentence if waits are a notable part of the steps after the first.

        ``step_end_ns``: when each step ended, on the clock `now_ns`.
        """
        if len(step_end_ns) < 2:
            return []
        begin_ns, end_ns, steps = step_end_ns[0], step_end_ns[-1], len(step_end_ns) - 1
        waited_ns: Counter[str] = Counter()
        for wait_begin_ns, wait_ns, line in self._waits:
            if begin_ns <= wait_begin_ns < end_ns:
                waited_ns[line] += wait_ns
        total_ns = waited_ns.total()
        if total_ns <= _LEAST_SHARE * (end_ns - begin_ns) and total_ns <= _LEAST_NS * steps:
            return []
        lines = [line for line, _ in waited_ns.most_common(_MOST_NAMED)]
        suffix = f" and {len(waited_ns) - _MOST_NAMED} more" if len(waited_ns) > _MOST_NAMED else ""
        return [
            f"The script waited {seconds(total_ns / steps / 1e9)} a step for threads or processes of its own "
            f"({', '.join(lines)}{suffix}): this time is not simulated. On the cluster, a step takes at least as long "
            "as they need for it."
        ]

    def _watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self._thread or self._is_waiting:
                return function(*args, **kwargs)
            self._is_waiting = True
            begin_ns, begin_cpu_ns = now_ns(), time.thread_time_ns()
            try:
                return function(*args, **kwargs)
            finally:
                self._is_waiting = False
                wait_ns = now_ns() - begin_ns - (time.thread_time_ns() - begin_cpu_ns)  # CPU time is host time
                if wait_ns >= _SHORTEST_NS:
                    self._add(begin_ns, wait_ns, sys._getframe(1), function.__qualname__)

        return watched

    def _add(self, begin_ns: int, wait_ns: int, frame: FrameType, call: str) -> None:
        start_ns = now_ns()
        if line := _waiting_line(frame, call):
            self._waits.append((begin_ns, wait_ns, line))
        self._add_own_time(now_ns() - start_ns)

    def _end(self) -> None:
        """Watch nothing more: this is a process that the script has forked."""
        self._thread = 0


def _waiting_line(frame: FrameType | None, call: str) -> str:
    """The wait as ``Queue.get at train.py:12``; empty if PyTorch or presim waits.

    ``call``: qualified name of the function that waits; ``frame``: its caller. The name becomes that of the function
    of Python's library that the program has called.
    """
    while frame is not None and is_python(frame.f_code.co_filename):
        call, frame = frame.f_code.co_qualname, frame.f_back
    if frame is None or is_torch(frame.f_code.co_filename):
        return ""
    own_frame: FrameType | None = frame
    while own_frame is not None and not is_own(own_frame.f_code.co_filename):
        own_frame = own_frame.f_back
    own_frame = own_frame or frame
    return f"{call} at {own_frame.f_code.co_filename}:{own_frame.f_lineno}"
