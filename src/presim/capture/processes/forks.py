"""Start ranks as forks of one process that has imported what all of them import (`presim.capture.zygote`).

Sixty-four ranks then share one copy of PyTorch's imports, and only the first has to wait for them. Ranks start as
separate processes instead if they differ in a variable that libraries read at load time, or if something starts a
thread in every Python process of this machine.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

import msgspec

from presim.capture import ctrl_c
from presim.capture.processes.rank_process import Process, Start, child_of, execute, python
from presim.capture.processes.variables import PLACE_VARIABLES
from presim.capture.script.control import ForkRequest

RECIPE = "recipe"  # import the whole top level of a script
_START_TIMEOUT_S = 60.0  # wait for a fork to report its process id
_IMPORTS_S = 300.0  # wait for the imports


class _Forked:
    """A forked rank. The zygote reaps it and reports its exit code through the pipe."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._code: int | None = None
        self.pid = _number(pipe, _START_TIMEOUT_S) or 0

    def fileno(self) -> int:
        return self._pipe

    def poll(self) -> int | None:
        if self._code is None and _readable(self._pipe, 0):
            code = _number(self._pipe, 0)
            self._code = -signal.SIGKILL if code is None else code  # the zygote is gone, and the fork with it
        return self._code

    def close(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1


def _readable(file: int, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def _number(pipe: int, timeout_s: float) -> int | None:
    """Read a line with a number; None if the other end has closed the pipe or sends nothing in time."""
    text = b""
    while not text.endswith(b"\n"):
        character = os.read(pipe, 1) if text or _readable(pipe, timeout_s) else b""
        if not character:
            return None
        text += character
    return int(text)


class Forks:
    """Starts ranks, as forks if there are several. The zygote lives as long as the context.

    ``imports``: what to import before forking besides PyTorch, as the arguments of `presim.capture.zygote`. With a
    recipe's top-level imports, a single rank is forked too.
    """

    def __init__(self, imports: tuple[str, str] | None = None) -> None:
        self.imports = imports
        self._shared_variables: Mapping[str, str] = {}  # environment of the zygote
        self._options: tuple[str, ...] = ()
        self._channel: socket.socket | None = None
        self._awaited: socket.socket | None = None  # the channel until the zygote is ready
        self._zygote: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Forks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the zygote, and the ranks with it."""
        for channel in filter(None, (self._channel, self._awaited)):
            channel.close()
        if self._zygote is not None:
            self._zygote.kill()
            self._zygote.wait()
        self._channel = self._awaited = self._zygote = None

    def begin(self, starts: Sequence[Start]) -> None:
        """Let the zygote import for ranks that will start soon; returns at once. `starter` may be called without."""
        if self._zygote is None and self._has_use(starts):
            self._begin(starts[0])

    def starter(self, starts: Sequence[Start]) -> Callable[[Start], Process]:
        """The function that starts these ranks, which run together."""
        if self._zygote is not None and self._is_useless(starts):
            self.close()
        if self._zygote is None:
            if not self._has_use(starts):
                return execute
            self._begin(starts[0])
        if not self._is_ready() and self.imports is not None and self.imports[0] != RECIPE:
            self.close()  # the script's imports depend on the rank or cannot be shared: import only PyTorch
            self.imports = None
            self._begin(starts[0])
        is_same = self._is_ready() and all(self._is_same(start) for start in starts)
        return self._start if is_same else execute

    def _has_use(self, starts: Sequence[Start]) -> bool:
        """Whether ranks are forked at all."""
        return len(starts) > 1 or (self.imports is not None and self.imports[0] == RECIPE)

    def _is_useless(self, starts: Sequence[Start]) -> bool:
        """Whether the zygote was killed after it had been ready, or began with what the simulator has changed since."""
        assert self._zygote is not None, "checked by `starter`"
        if self._channel is not None:
            return self._zygote.poll() is not None
        return not self._is_same(starts[0])

    def _begin(self, first: Start) -> None:
        """Start the zygote, which imports everything."""
        self._shared_variables, self._options = _without_rank_variables(first), first.python
        # All ranks have the same device, though their device files have different paths.
        environment = {**self._shared_variables, "PRESIM_DEVICE": first.variables.get("PRESIM_DEVICE", "")}
        rank_variables = ",".join(sorted(name for name in first.variables if name not in environment))
        imports = (*self.imports, rank_variables) if self.imports else ()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, ctrl_c.delayed():
            self._zygote = subprocess.Popen(
                python(first.python, "presim.capture.zygote", str(theirs.fileno()), *imports),
                env=environment,
                pass_fds=(theirs.fileno(),),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # each rank reports the same errors itself
                start_new_session=True,
                preexec_fn=child_of(os.getpid()),
            )
        ours.settimeout(_IMPORTS_S)
        self._awaited = ours

    def _is_ready(self) -> bool:
        """Wait until the zygote has imported everything; False if it has given up."""
        if self._awaited is not None:
            ours, self._awaited = self._awaited, None
            with contextlib.suppress(TimeoutError):
                if ours.recv(64):
                    ours.settimeout(None)
                    self._channel = ours
                    return True
            ours.close()
        return self._channel is not None

    def _is_same(self, start: Start) -> bool:
        """Whether a rank differs from the zygote only in per-rank settings."""
        return _without_rank_variables(start) == self._shared_variables and start.python == self._options

    def _start(self, start: Start) -> Process:
        """Fork a rank, or start a separate process if the zygote cannot fork."""
        assert self._channel is not None, "test_forks: only `starter` hands this out"
        reading, writing = os.pipe()
        variables = {
            name: value for name, value in start.variables.items() if self._shared_variables.get(name) != value
        }
        request = msgspec.json.encode(ForkRequest(str(start.control), variables))
        nothing = os.open(os.devnull, os.O_WRONLY)
        files = [writing, _output(start.stdout, 1, nothing), _output(start.stderr, 2, nothing)]
        try:
            socket.send_fds(self._channel, [request], files)
        except OSError:
            os.close(reading)
            return execute(start)
        finally:
            os.close(writing)
            os.close(nothing)
        forked = _Forked(reading)
        if forked.pid:
            return forked
        forked.close()
        return execute(start)


def _output(requested: int | None, ours: int, nothing: int) -> int:
    """The file descriptor for a rank's output, from an argument as `subprocess` takes it."""
    if requested is None:
        return ours
    return nothing if requested == subprocess.DEVNULL else requested


def _is_own(name: str) -> bool:
    """Whether a variable differs between ranks. PRESIM_LIVE is the same for all."""
    return name in PLACE_VARIABLES or (name.startswith("PRESIM_") and name != "PRESIM_LIVE")


def _without_rank_variables(start: Start) -> dict[str, str]:
    return {name: value for name, value in start.variables.items() if not _is_own(name)}
