"""A process that has imported what every rank's process imports, and becomes ranks: a fork for each that is asked for.

Most of what a rank holds is what it imports; forks share those pages until they write to them, and are there at once.
Started by `presim.capture.processes.forks` as ``python -m presim.capture.zygote FD [WHAT SCRIPT OWN]``. FD is its end
of a socket pair:

    zygote   -> launcher   "ready", once, when all is imported
    launcher -> zygote     a `Request` with three descriptors: a pipe to the launcher, the rank's stdout and stderr
    rank     -> pipe       its process id, as a line
    zygote   -> pipe       its exit code, as a line, when it has ended

Torch is imported before the script in any case (`runner`), and torch._dynamo, which PyTorch's optimizers import. Nothing
of the script is run here. Where SCRIPT is given, packages that it imports are there, too
(`presim.capture.script.preimport`): WHAT is ``script`` or ``module`` for the imports at its beginning, ``recipe`` for
those of its whole top level. OWN has the names of a rank's own variables.

What is different for each rank (variables, log, seeds) begins in the fork. Where something has started a thread
already, which no fork would have, or has asked something of the device, the process ends without a word and ranks
start by themselves.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import socket
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from presim.capture import runner
from presim.capture.processes.process import end_with_parent
from presim.capture.script.control import Request
from presim.capture.setup.environment import require_torch
from presim.capture.setup.hook_build import ensure_hook

if TYPE_CHECKING:
    from presim.capture.observers import AtImport

_READY = b"ready"
_REQUEST_BYTES = 1 << 17
_ARROW_ALLOCATOR = "JE_ARROW_MALLOC_CONF"  # read when pyarrow is imported


class _Children:
    """The ranks that live: by pidfd, their process and the pipe to the launcher."""

    def __init__(self) -> None:
        self.alive: dict[int, tuple[int, int]] = {}

    def add(self, process: int, pipe: int) -> int:
        """Returns what can be waited on."""
        file = os.pidfd_open(process)
        self.alive[file] = process, pipe
        return file

    def reap(self, file: int) -> None:
        """It has ended: say how."""
        process, pipe = self.alive.pop(file)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        os.write(pipe, b"%d\n" % code)
        os.close(pipe)
        os.close(file)

    def forget(self) -> None:
        """In a child: they are its siblings."""
        for file, (_, pipe) in self.alive.items():
            os.close(pipe)
            os.close(file)


def _is_fit() -> bool:
    alone = len(os.listdir("/proc/self/task")) == 1
    return alone and bool(_shim().presim_is_unused()) and _fork_may_use_device()


def _fork_may_use_device() -> bool:
    """PyTorch forbids it to forks of a process that has asked it for devices, and says so in the fork only."""
    process = os.fork()
    if process == 0:
        os._exit(sys.modules["torch"]._C._cuda_isInBadFork())
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0


def _shim() -> Any:
    return ctypes.CDLL("libpresim_shim.so")


def serve(channel: socket.socket, there: AtImport | None = None) -> NoReturn:
    """Fork for each request, until nobody asks any more."""
    zygote, children = os.getpid(), _Children()
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    while True:
        for file, _ in poll.poll():
            if file != channel.fileno():
                poll.unregister(file)
                children.reap(file)
                continue
            message, files, _, _ = socket.recv_fds(channel, _REQUEST_BYTES, 3)
            if not message:
                os._exit(0)
            pipe, *output = files
            process = _fork()
            if process == 0:
                children.forget()
                channel.close()
                _be_rank(zygote, msgspec.json.decode(message, type=Request), (pipe, *output), there)
            for one in output:
                os.close(one)
            if process is None:
                os.close(pipe)
            else:
                poll.register(children.add(process, pipe), select.POLLIN)


def _fork() -> int | None:
    """None: the system has no room for another process, which the launcher will find out and say."""
    try:
        return os.fork()
    except OSError:
        return None


def _be_rank(zygote: int, request: Request, files: tuple[int, ...], there: AtImport | None) -> NoReturn:
    """In the fork."""
    pipe, stdout, stderr = files
    try:
        os.setsid()
        end_with_parent(zygote)
        for source, target in ((stdout, 1), (stderr, 2)):
            os.dup2(source, target)
            os.close(source)
        os.write(pipe, b"%d\n" % os.getpid())
        os.close(pipe)
        os.environ.update(request.variables)
        _shim().presim_rank_begins()
        ctypes.CDLL("libnccl.so.2").presim_ranks_begin()
        _differ()
        runner.run(Path(request.control), there)
    except BaseException:  # noqa: BLE001 - a fork must not go on as the zygote
        traceback.print_exc()
    finally:
        os._exit(1)


def _differ() -> None:
    """What processes that start by themselves do not have in common."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.reconfigure(line_buffering=stream is sys.stderr or stream.isatty())  # type: ignore[union-attr]
    numbers = sys.modules.get("numpy.random")
    if numbers is not None:
        numbers.seed()  # else all ranks would draw the same ones; Python's own seeds itself anew in a fork
    sys.modules["torch"].default_generator.seed()


def _import_for(what: str, script: str, own: str) -> AtImport:
    """What the script imports, with observers in place that have to be there first."""
    from presim.capture.observers import AtImport
    from presim.capture.script.preimport import import_leading, preimport

    there = AtImport(ensure_hook(require_torch()))
    if what == "recipe":
        preimport(Path(script))
    else:
        import_leading(script, own.split(","), is_module=what == "module")
    return there


@contextlib.contextmanager
def _without_arrow_thread() -> Iterator[None]:
    """pyarrow's allocator starts a thread that returns memory, unless this says no; forks could not have it."""
    if _ARROW_ALLOCATOR in os.environ:
        yield
        return
    os.environ[_ARROW_ALLOCATOR] = "background_thread:false"
    try:
        yield
    finally:
        del os.environ[_ARROW_ALLOCATOR]


def main() -> NoReturn:
    """Entry point; the arguments are the number of the socket's descriptor and, where there is one, what to import."""
    runner.leave_package_path()
    channel = socket.socket(fileno=int(sys.argv[1]))
    import presim.capture.observers  # noqa: F401 - for the forks
    from presim.capture.script.preimport import import_dynamo

    with _without_arrow_thread():
        there = _import_for(*sys.argv[2:5]) if len(sys.argv) > 2 else None
        import_dynamo()
    if not _is_fit():
        os._exit(0)
    gc.collect()
    gc.freeze()  # collections pass over it, and so leave its pages shared
    channel.send(_READY)
    serve(channel, there)


if __name__ == "__main__":
    main()
