"""A rank's process, as the launcher sees it, however it was started."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

_ADDR_NO_RANDOMIZE = 0x0040000  # sys/personality.h
_PR_SET_PDEATHSIG = 1  # sys/prctl.h


@dataclasses.dataclass(frozen=True)
class Start:
    """What one rank's process is given."""

    rank: int
    control: Path
    variables: Mapping[str, str]
    python: tuple[str, ...] = ()  # options of the interpreter
    stdout: int | None = None  # file descriptor; None: ours
    stderr: int | None = None


class Process(Protocol):
    """Leads a session and a process group of its own."""

    pid: int

    def fileno(self) -> int:
        """Can be read from when it has ended."""
        ...

    def poll(self) -> int | None:
        """Exit code, negative for a signal; None while it runs."""
        ...

    def close(self) -> None:
        """It is of no more interest."""
        ...


def has_ended_within(process: Process, patience_s: float) -> bool:
    """Wait for its end."""
    poll = select.poll()
    poll.register(process.fileno(), select.POLLIN)
    return bool(poll.poll(patience_s * 1000)) and process.poll() is not None


def python(options: tuple[str, ...], module: str, *arguments: str) -> list[str]:
    """The command of a process that runs a module of ours with the script's interpreter."""
    return [sys.executable, *options, "-m", module, *arguments]


def child_of(launcher: int) -> Callable[[], None]:
    """What a child of the process ``launcher`` does before its command is run.

    It keeps its addresses, as PyTorch frees in their order here and there, and it ends with its launcher: one that is
    killed cannot end it.
    """

    def prepare() -> None:
        ctypes.CDLL(None).personality(_ADDR_NO_RANDOMIZE)  # a kernel that refuses keeps its random ones
        end_with_parent(launcher)

    return prepare


def end_with_parent(parent: int) -> None:
    """Have the kernel end this process when its parent ends; one that was killed before that ends it here."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(1)


class Executed:
    """A process that this one has started."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid
        self._file = os.pidfd_open(self.pid)

    def fileno(self) -> int:
        """See `Process`."""
        return self._file

    def poll(self) -> int | None:
        """See `Process`."""
        return self._process.poll()

    def close(self) -> None:
        """See `Process`."""
        with contextlib.suppress(OSError):
            os.close(self._file)


def execute(start: Start) -> Executed:
    """Start a rank as a process of its own from the beginning."""
    process = subprocess.Popen(
        python(start.python, "presim.capture.runner", str(start.control)),
        env=dict(start.variables),
        stdout=start.stdout,
        stderr=start.stderr,
        start_new_session=True,
        preexec_fn=child_of(os.getpid()),
    )
    return Executed(process)
