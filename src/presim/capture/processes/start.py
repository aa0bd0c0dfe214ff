"""Start the processes of some ranks on the emulated device and wait for them to end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from presim.capture import ctrl_c
from presim.capture.processes.rank_process import Process, Start, execute, has_ended_within
from presim.capture.script.current_line import query_line
from presim.errors import CaptureError, HangError

_POLL_S = 0.2
_GRACE_S = 3.0  # after a rank has failed: time for the others to fail by themselves
_HANG_S = 5.0  # how long every rank must wait for another before the job counts as hung
_MAX_LISTED = 4  # ranks listed with their lines
_DESCENDANT_GRACE_S = 1.0  # after SIGTERM: time for a rank's descendants to end


class Watch:
    """Callbacks while processes run; these do nothing."""

    def started(self, processes: Mapping[int, int]) -> None:
        """All processes have started: rank -> process id."""

    def progress(self) -> None:
        """Called regularly."""

    def ended(self, rank: int, code: int) -> bool:
        """A process has ended or was killed. Return True to end the others at once."""
        return False

    def is_waiting(self, rank: int) -> bool:
        """Whether a rank waits for another; if the limit passes, the error names a rank that does not."""
        return False

    def release(self, deadlock: str) -> bool:
        """Let ranks that wait for each other go on, so that the simulation can tell why; False: they cannot."""
        return False


def supervise(
    starts: Sequence[Start],
    watch: Watch | None = None,
    *,
    limit_s: float,
    start: Callable[[Start], Process] = execute,
    optional: Collection[int] = (),
) -> dict[int, int]:
    """Run processes to their end and return their exit codes by rank; a negative code is the signal that ended one.

    Each process leads a process group, so that its descendants end with it: on Ctrl-C, on an error here, after
    ``limit_s`` seconds for all together, and when it ends itself. If a rank that is not ``optional`` fails, the others
    get a moment to fail by themselves before they are ended. ``start`` starts one process.

    Raises:
        CaptureError: the limit has passed.
        HangError: every rank waits for another.
    """
    watch = watch or Watch()
    deadline = time.monotonic() + limit_s
    hang_detector = _HangDetector(watch)
    codes: dict[int, int] = {}
    with _processes(starts, start) as running:
        watch.started({rank: process.pid for rank, process in running.items()})
        while running:
            for rank in _wait(running):
                codes[rank] = _exit_code(running.pop(rank))
                if watch.ended(rank, codes[rank]):
                    return codes | _end_all(running)
                if codes[rank] != 0 and rank not in optional:
                    deadline = min(deadline, time.monotonic() + _GRACE_S)
            watch.progress()
            if hang_detector.has_hung(running):
                deadlock = _describe_deadlock(starts, running)
                if not watch.release(deadlock):
                    raise HangError(deadlock)
                hang_detector = _HangDetector(watch)
            if running and time.monotonic() > deadline:
                if any(code for rank, code in codes.items() if rank not in optional):
                    return codes | _end_all(running)
                raise _timeout_error(starts, running, limit_s, watch)
    return codes


class _HangDetector:
    """Detects that all running ranks wait for each other."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._since: float | None = None

    def has_hung(self, running: Mapping[int, Process]) -> bool:
        """Whether all ranks have waited for a while. Poll by calling it."""
        if len(running) < 2 or not all(self._watch.is_waiting(rank) for rank in running):
            self._since = None
        elif self._since is None:
            self._since = time.monotonic()
        return self._since is not None and time.monotonic() - self._since > _HANG_S


def _describe_deadlock(starts: Sequence[Start], running: Mapping[int, Process]) -> str:
    places = []
    for start in [start for start in starts if start.rank in running][:_MAX_LISTED]:
        line = query_line(running[start.rank].pid, start.control.parent)
        places.append(f"rank {start.rank}{f' at {line}' if line else ''}")
    suffix = f" and {len(running) - _MAX_LISTED} more" if len(running) > _MAX_LISTED else ""
    return f"every rank waits for another, {', '.join(places)}{suffix}"


def _wait(running: Mapping[int, Process]) -> list[int]:
    """Ranks whose processes have ended; returns when one has, or after a short timeout."""
    poll = select.poll()
    for process in running.values():
        poll.register(process.fileno(), select.POLLIN)
    poll.poll(_POLL_S * 1000)
    return [rank for rank, process in running.items() if process.poll() is not None]


def _exit_code(process: Process) -> int:
    """The exit code of a process that has ended or cannot be ended."""
    code = process.poll()
    process.close()
    return -signal.SIGKILL if code is None else code


def _timeout_error(
    starts: Sequence[Start], running: Mapping[int, Process], limit_s: float, watch: Watch
) -> CaptureError:
    free = [rank for rank in running if not watch.is_waiting(rank)]
    rank = (free or list(running))[0]
    line = query_line(running[rank].pid, next(start.control.parent for start in starts if start.rank == rank))
    location = f" and is at {line}" if line else ""
    clause = ", which the others wait for," if len(running) > len(free) == 1 else ""
    subject = "the script" if len(starts) == 1 else f"rank {rank}{clause}"
    return CaptureError(
        f"{subject} had not ended after {limit_s:g} s{location}; it may wait for a value that the emulated "
        "device does not compute. Increase the limit with --limit SECONDS, or run fewer steps with --steps N"
    )


@contextlib.contextmanager
def _processes(starts: Sequence[Start], start: Callable[[Start], Process]) -> Iterator[dict[int, Process]]:
    running: dict[int, Process] = {}
    leaders: list[int] = []
    try:
        for rank_start in starts:
            with ctrl_c.delayed():
                running[rank_start.rank] = start(rank_start)
                leaders.append(running[rank_start.rank].pid)
        yield running
    finally:
        _end_all(running)
        _end_descendants(leaders)


def _end_all(running: dict[int, Process]) -> dict[int, int]:
    """End all with SIGTERM, then SIGKILL, ignoring a second Ctrl-C; returns the exit codes.

    What a process that has ended left in its group gets no SIGKILL here: Python's resource tracker ignores SIGTERM, and
    unlinks semaphores and shared memory when the last process that used them has ended (`_end_descendants`).
    """
    with ctrl_c.ignored():
        for number, timeout_s in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 10.0)):
            alive = [process for process in running.values() if process.poll() is None]
            for process in alive:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, number)
            until = time.monotonic() + timeout_s
            for process in alive:
                has_ended_within(process, max(0.0, until - time.monotonic()))
        codes = {rank: _exit_code(process) for rank, process in running.items()}
        running.clear()
    return codes


def _end_descendants(leaders: Sequence[int]) -> None:
    """End what processes that have ended left running in their groups, with SIGTERM, then SIGKILL."""
    with ctrl_c.ignored():
        for number in (signal.SIGTERM, signal.SIGKILL):
            running_leaders = [leader for leader in leaders if _has_live_members(leader)]
            for leader in running_leaders:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(leader, number)
            until = time.monotonic() + _DESCENDANT_GRACE_S
            while any(map(_has_live_members, running_leaders)) and time.monotonic() < until:
                time.sleep(_DESCENDANT_GRACE_S / 100)


def _has_live_members(leader: int) -> bool:
    """Whether a process group has a live member; zombies do not count."""
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            state, _, group = path.read_text().rpartition(")")[2].split()[:3]
            if int(group) == leader and state not in "ZX":
                return True
    return False
