"""A rank's process as the launcher handles it, whether forked or executed."""

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
    """What a rank's process is started with."""

    rank: int
    control: Path
    variables: Mapping[str, str]
    python: tuple[str, ...] = ()  # interpreter options
    stdout: int | None = None  # file descriptor; None: this process's stdout
    stderr: int | None = None


class Process(Protocol):
    """A process that leads its own session and process group."""

    pid: int

    def fileno(self) -> int:
        """A descriptor that becomes readable when the process has ended."""
        ...

    def poll(self) -> int | None:
        """Exit code, negative for a signal; None while it runs."""
        ...

    def close(self) -> None:
        """Release the descriptor."""
        ...


def has_ended_within(process: Process, timeout_s: float) -> bool:
    """Wait for the process to end; returns whether it has."""
    poll = select.poll()
    poll.register(process.fileno(), select.POLLIN)
    return bool(poll.poll(timeout_s * 1000)) and process.poll() is not None


def python(options: tuple[str, ...], module: str, *arguments: str) -> list[str]:
    """The command that runs one of our modules with the script's interpreter."""
    return [sys.executable, *options, "-m", module, *arguments]


def child_of(launcher: int) -> Callable[[], None]:
    """The ``preexec_fn`` of a child of the process ``launcher``.

    It disables address randomisation, because PyTorch frees some things in address order, and ties the child's life to
    the launcher's: a launcher that is killed cannot end it.
    """

    def prepare() -> None:
        ctypes.CDLL(None).personality(_ADDR_NO_RANDOMIZE)  # a kernel that refuses this keeps randomisation
        end_with_parent(launcher)

    return prepare


def end_with_parent(parent: int) -> None:
    """Have the kernel end this process when its parent ends; end now if the parent has already ended."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(1)


class Executed:
    """A process started by this one."""

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
    """Start a rank as a separate process."""
    process = subprocess.Popen(
        python(start.python, "presim.capture.runner", str(start.control)),
        env=dict(start.variables),
        stdout=start.stdout,
        stderr=start.stderr,
        start_new_session=True,
        preexec_fn=child_of(os.getpid()),
    )
    return Executed(process)
