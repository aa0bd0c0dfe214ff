"""Starts the processes of some ranks on the emulated device and waits for their end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from presim.capture import ctrl_c
from presim.capture.processes.process import Process, Start, execute, has_ended_within
from presim.capture.script.current_line import ask
from presim.errors import CaptureError, HangError

_POLL_S = 0.2
_GRACE_S = 3.0  # for the others to fail by themselves where one has failed
_STANDSTILL_S = 5.0  # that every rank waits for another before the job is taken to hang
_NAMED = 4  # ranks that a sentence names with their lines
_LEFT_S = 1.0  # for what a rank has started and left to end when it is told to


class Watch:
    """What is asked and told while processes run; this one asks nothing and keeps nothing."""

    def started(self, processes: Mapping[int, int]) -> None:
        """All of them run: their ids by rank."""

    def progress(self) -> None:
        """Called now and then."""

    def ended(self, rank: int, code: int) -> bool:
        """A process has ended by itself or was killed. True: the others shall end at once."""
        return False

    def waits(self, rank: int) -> bool:
        """Whether a rank cannot go on before another does: where the limit has passed another one is to blame."""
        return False


def supervise(
    starts: Sequence[Start],
    watch: Watch | None = None,
    *,
    limit_s: float,
    start: Callable[[Start], Process] = execute,
    optional: Collection[int] = (),
) -> dict[int, int]:
    """Run processes to their end and return their exit codes by rank; negative: the signal that ended one.

    Each gets a group of its own, so that whatever it starts ends with it: on Ctrl-C, on an error here, when ``limit_s``
    seconds have passed for all together, and where it ends by itself. Where one fails that is not ``optional``, the
    others have a moment to fail by themselves, then are ended. ``start`` starts one.

    Raises:
        CaptureError: the limit has passed.
        HangError: every rank waits for another.
    """
    watch = watch or Watch()
    deadline = time.monotonic() + limit_s
    standstill = _Standstill(watch)
    codes: dict[int, int] = {}
    with _processes(starts, start) as running:
        watch.started({rank: process.pid for rank, process in running.items()})
        while running:
            for rank in _wait(running):
                codes[rank] = _code(running.pop(rank))
                if watch.ended(rank, codes[rank]):
                    return codes | _end_all(running)
                if codes[rank] != 0 and rank not in optional:
                    deadline = min(deadline, time.monotonic() + _GRACE_S)
            watch.progress()
            if standstill.has_lasted(running):
                raise _hangs(starts, running)
            if running and time.monotonic() > deadline:
                if any(code for rank, code in codes.items() if rank not in optional):
                    return codes | _end_all(running)
                raise _too_long(starts, running, limit_s, watch)
    return codes


class _Standstill:
    """Whether all ranks that still run wait for each other."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._since: float | None = None

    def has_lasted(self, running: Mapping[int, Process]) -> bool:
        """Asked again and again: whether it has been so for a while."""
        if len(running) < 2 or not all(self._watch.waits(rank) for rank in running):
            self._since = None
        elif self._since is None:
            self._since = time.monotonic()
        return self._since is not None and time.monotonic() - self._since > _STANDSTILL_S


def _hangs(starts: Sequence[Start], running: Mapping[int, Process]) -> HangError:
    places = []
    for start in [start for start in starts if start.rank in running][:_NAMED]:
        line = ask(running[start.rank].pid, start.control.parent)
        places.append(f"rank {start.rank}{f' at {line}' if line else ''}")
    more = f" and {len(running) - _NAMED} more" if len(running) > _NAMED else ""
    return HangError(f"every rank waits for another, {', '.join(places)}{more}")


def _wait(running: Mapping[int, Process]) -> list[int]:
    """Ranks whose processes have ended, as soon as one has; at the latest after a while."""
    poll = select.poll()
    for process in running.values():
        poll.register(process.fileno(), select.POLLIN)
    poll.poll(_POLL_S * 1000)
    return [rank for rank, process in running.items() if process.poll() is not None]


def _code(process: Process) -> int:
    """Its exit code, now that it has ended or cannot be made to."""
    code = process.poll()
    process.close()
    return -signal.SIGKILL if code is None else code


def _too_long(starts: Sequence[Start], running: Mapping[int, Process], limit_s: float, watch: Watch) -> CaptureError:
    free = [rank for rank in running if not watch.waits(rank)]
    rank = (free or list(running))[0]
    line = ask(running[rank].pid, next(start.control.parent for start in starts if start.rank == rank))
    place = f" and is at {line}" if line else ""
    others = ", which the others wait for," if len(running) > len(free) == 1 else ""
    who = "the script" if len(starts) == 1 else f"rank {rank}{others}"
    return CaptureError(
        f"{who} had not ended after {limit_s:g} s{place}; it may wait for a value that the emulated "
        "device does not compute. Give it more with --limit SECONDS, or fewer steps with --steps N"
    )


@contextlib.contextmanager
def _processes(starts: Sequence[Start], start: Callable[[Start], Process]) -> Iterator[dict[int, Process]]:
    running: dict[int, Process] = {}
    leaders: list[int] = []
    try:
        for one in starts:
            with ctrl_c.delayed():
                running[one.rank] = start(one)
                leaders.append(running[one.rank].pid)
        yield running
    finally:
        _end_all(running)
        _end_left(leaders)


def _end_all(running: dict[int, Process]) -> dict[int, int]:
    """Politely, then for certain; a second Ctrl-C does not leave them running. Returns the exit codes."""
    with ctrl_c.ignored():
        for number, patience_s in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 10.0)):
            alive = [process for process in running.values() if _group_alive(process)]
            for process in alive:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, number)
            until = time.monotonic() + patience_s
            for process in alive:
                has_ended_within(process, max(0.0, until - time.monotonic()))
        codes = {rank: _code(process) for rank, process in running.items()}
        running.clear()
    return codes


def _end_left(leaders: Sequence[int]) -> None:
    """End what processes that have ended have started and left: politely, and for certain what does not go."""
    with ctrl_c.ignored():
        for number in (signal.SIGTERM, signal.SIGKILL):
            left = [leader for leader in leaders if _members(leader)]
            for leader in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(leader, number)
            until = time.monotonic() + _LEFT_S
            while any(map(_members, left)) and time.monotonic() < until:
                time.sleep(_LEFT_S / 100)


def _members(leader: int) -> bool:
    """Whether a process group has any that lives; those that nobody has reaped do not count."""
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


def _group_alive(process: Process) -> bool:
    """Whether the process or something that it started is there still."""
    if process.poll() is None:
        return True
    try:
        os.killpg(process.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
