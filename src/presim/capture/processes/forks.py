"""Ranks as forks of one process that has imported what all of them import (`presim.capture.zygote`).

Sixty-four ranks then hold PyTorch's imports once, and the second to start need not wait for them. Where it cannot be
done, because ranks differ in a variable that libraries read when they are loaded, or because something has started a
thread in every Python process of this machine, ranks are started as processes of their own.
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
from presim.capture.processes.process import Process, Start, child_of, execute, python
from presim.capture.processes.variables import PLACING
from presim.capture.script.control import Request

RECIPE = "recipe"  # import the whole top level of a script
_PATIENCE_S = 60.0  # for a fork to say that it is there
_IMPORTS_S = 300.0  # for all to be imported


class _Forked:
    """A fork; its parent reaps it and says how it ended."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._code: int | None = None
        self.pid = _number(pipe, _PATIENCE_S) or 0

    def fileno(self) -> int:
        return self._pipe

    def poll(self) -> int | None:
        if self._code is None and _readable(self._pipe, 0):
            code = _number(self._pipe, 0)
            self._code = -signal.SIGKILL if code is None else code  # its parent is gone, and it with it
        return self._code

    def close(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1


def _readable(file: int, patience_s: float) -> bool:
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(patience_s * 1000))


def _number(pipe: int, patience_s: float) -> int | None:
    """The next line; None: nobody is there any more."""
    text = b""
    while not text.endswith(b"\n"):
        more = os.read(pipe, 1) if text or _readable(pipe, patience_s) else b""
        if not more:
            return None
        text += more
    return int(text)


class Forks:
    """Starts ranks. What they are forks of is started when there are several, and lives as long as the context.

    ``imports``: what is imported before the fork besides PyTorch, as arguments of `presim.capture.zygote`. With those
    of a recipe's whole top level a rank that runs alone is a fork, too.
    """

    def __init__(self, imports: tuple[str, str] | None = None) -> None:
        self.imports = imports
        self._common: Mapping[str, str] = {}  # what the zygote was started with
        self._options: tuple[str, ...] = ()
        self._channel: socket.socket | None = None
        self._zygote: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Forks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End what ranks are forks of, and the ranks with it."""
        if self._channel is not None:
            self._channel.close()
        if self._zygote is not None:
            self._zygote.kill()
            self._zygote.wait()
        self._channel = self._zygote = None

    def starter(self, starts: Sequence[Start]) -> Callable[[Start], Process]:
        """What starts each of these, which run together."""
        if self._zygote is not None and self._channel is not None and self._zygote.poll() is not None:
            self.close()  # it served until something ended it
        if self._zygote is None:
            if len(starts) < 2 and (self.imports is None or self.imports[0] != RECIPE):
                return execute
            self._begin(starts[0])
            if self._channel is None and self.imports is not None and self.imports[0] != RECIPE:
                self.close()  # what the script imports depends on the rank, or cannot be shared: PyTorch alone can
                self.imports = None
                self._begin(starts[0])
        is_same = all(self._is_same(start) for start in starts)
        return self._start if self._channel is not None and is_same else execute

    def _begin(self, first: Start) -> None:
        """Start the zygote and wait until it has imported everything."""
        self._common, self._options = _common(first), first.python
        # The same device for all ranks, wherever its description lies.
        given = {**self._common, "PRESIM_DEVICE": first.variables.get("PRESIM_DEVICE", "")}
        own = ",".join(sorted(name for name in first.variables if name not in given))
        imports = (*self.imports, own) if self.imports else ()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, ctrl_c.delayed():
            self._zygote = subprocess.Popen(
                python(first.python, "presim.capture.zygote", str(theirs.fileno()), *imports),
                env=given,
                pass_fds=(theirs.fileno(),),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # what it has to say each rank says
                start_new_session=True,
                preexec_fn=child_of(os.getpid()),
            )
        ours.settimeout(_IMPORTS_S)
        with contextlib.suppress(TimeoutError):
            if ours.recv(64):
                ours.settimeout(None)
                self._channel = ours
                return
        ours.close()

    def _is_same(self, start: Start) -> bool:
        """Whether it differs from the zygote in nothing but what is a rank's own."""
        return _common(start) == self._common and start.python == self._options

    def _start(self, start: Start) -> Process:
        """A fork, or a process of its own where there is no fork to be had."""
        assert self._channel is not None, "test_forks: only `starter` hands this out"
        listens, tells = os.pipe()
        variables = {name: value for name, value in start.variables.items() if self._common.get(name) != value}
        request = msgspec.json.encode(Request(str(start.control), variables))
        nothing = os.open(os.devnull, os.O_WRONLY)
        files = [tells, _output(start.stdout, 1, nothing), _output(start.stderr, 2, nothing)]
        try:
            socket.send_fds(self._channel, [request], files)
        except OSError:
            os.close(listens)
            return execute(start)
        finally:
            os.close(tells)
            os.close(nothing)
        forked = _Forked(listens)
        if forked.pid:
            return forked
        forked.close()
        return execute(start)


def _output(asked: int | None, ours: int, nothing: int) -> int:
    """The descriptor of a rank's output, from what `subprocess` would be given."""
    if asked is None:
        return ours
    return nothing if asked == subprocess.DEVNULL else asked


def _is_own(name: str) -> bool:
    """Variables that say which rank a process is. The live clock's is the same for all."""
    return name in PLACING or (name.startswith("PRESIM_") and name != "PRESIM_LIVE")


def _common(start: Start) -> dict[str, str]:
    return {name: value for name, value in start.variables.items() if not _is_own(name)}
