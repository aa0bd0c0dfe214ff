"""Captures of tests as forks of a process that has imported PyTorch, because importing takes most of a small one.

`presim` starts the first process of a capture (`presim.capture.zygote`, or `presim.capture.runner` for a single rank)
with ``subprocess.Popen``. `install` replaces that call in presim's own modules by a request to a server, which forks:
the same module runs with the same arguments, environment, directory and descriptors. A process whose imports could
differ (interpreter options, variables that libraries read when they are loaded) is started as ever.

``python -m support.preloaded ARGUMENTS`` is the `presim` command, with its captures as such forks.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

SERVER = "PRESIM_TESTS_SERVER"  # the path of its socket
LIVE = "PRESIM_LIVE"  # of a simulated clock
PYTHON_PATH = ":".join(str(Path(__file__).parents[2] / part) for part in ("src", "tests"))
_MODULES = ("presim.capture.zygote", "presim.capture.runner")
_PLACE = (
    "PYTEST_",
    "PRESIM_",
    "TMPDIR",
    "PWD",
    "OLDPWD",
    "PYTHONPATH",
    "HOME",
    "XDG_CACHE_HOME",
)
_LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_")


class PreloadedProcess:
    """A process that the server has forked, as `subprocess.Popen` shows its own."""

    def __init__(self, channel: socket.socket, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._channel = channel

    def poll(self) -> int | None:
        """The exit code of a process that has ended."""
        if self.returncode is None and _is_readable(self._channel, 0):
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        if self.returncode is None:
            if timeout is not None and not _is_readable(self._channel, timeout):
                raise subprocess.TimeoutExpired("a preloaded process", timeout)
            message = self._channel.recv(64)
            self.returncode = int(message) if message else -signal.SIGKILL
            self._channel.close()
        return self.returncode

    def kill(self) -> None:
        """End it at once."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


def _is_readable(channel: socket.socket, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def popen(command: Sequence[str], **settings: Any) -> Any:
    """`subprocess.Popen` for the first process of a capture."""
    environment = settings.get("env") or dict(os.environ)
    if [*command[:2]] != [sys.executable, "-m"] or command[2] not in _MODULES:
        return subprocess.Popen(command, **settings)
    return _fork(command, environment, settings) or subprocess.Popen(command, **settings)


def _fork(command: Sequence[str], environment: Mapping[str, str], settings: Mapping[str, Any]) -> Any:
    """Ask the server; None if it forks no process with these variables."""
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        channel.connect(server())
        passed = tuple(settings.get("pass_fds", ()))
        outputs = [_descriptor(settings.get(name), number) for name, number in (("stdout", 1), ("stderr", 2))]
        request = {"arguments": command[2:], "environment": environment, "cwd": os.getcwd(), "passed": passed}
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:  # longer than a packet may be
            json.dump(request, file)
            file.flush()
            socket.send_fds(channel, [file.name.encode()], [0, *outputs, *passed])
            pid = int(channel.recv(64) or b"0")
    except OSError:
        pid = 0
    if not pid:
        channel.close()
        return None
    return PreloadedProcess(channel, pid)


def _descriptor(requested: int | None, own: int) -> int:
    if requested is None:
        return own
    return os.open(os.devnull, os.O_WRONLY) if requested == subprocess.DEVNULL else requested


def import_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that an import could read, and the one that the emulated libraries read when they are loaded."""
    return {
        name: text for name, text in environment.items() if name == LIVE or not name.startswith((*_PLACE, *_LAUNCHER))
    }


def server() -> str:
    """The path of the socket of the server that all workers share, or of this process's own, which starts now."""
    return os.environ.get(SERVER) or start_server()


@functools.cache
def start_server() -> str:
    """Start a server, which ends with this process; returns the path of its socket."""
    folder = tempfile.mkdtemp(prefix="presim-tests-")
    path = str(Path(folder, "server"))
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen()
    words = [sys.executable, "-m", "support.preloading_server", str(listener.fileno())]
    server = subprocess.Popen(
        words,
        env=os.environ | {"PYTHONPATH": PYTHON_PATH},
        pass_fds=(listener.fileno(),),
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    atexit.register(_end_server, server, Path(folder))
    listener.close()
    return path


def _end_server(server: subprocess.Popen[bytes], folder: Path) -> None:
    server.kill()
    server.wait()
    (folder / "server").unlink()
    folder.rmdir()


@functools.cache
def first_environment() -> dict[str, str]:
    """This process's variables before any test changes them."""
    return dict(os.environ)


def install() -> None:
    """Have this process's captures ask the server."""
    first_environment()
    names = {name: getattr(subprocess, name) for name in ("DEVNULL", "PIPE", "TimeoutExpired")}
    _replace(SimpleNamespace(Popen=popen, **names))


def is_installed() -> bool:
    """Whether this process's captures ask the server."""
    from presim.capture.processes import forks

    return vars(forks)["subprocess"] is not subprocess


@contextlib.contextmanager
def removed() -> Iterator[None]:
    """Within the block, captures start processes as they do for a user."""
    _replace(subprocess)
    try:
        yield
    finally:
        install()


def _replace(replacement: Any) -> None:
    from presim.capture.processes import forks, rank_process

    for module in (forks, rank_process):
        vars(module)["subprocess"] = replacement


def main() -> None:
    """The command."""
    install()
    from presim.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
