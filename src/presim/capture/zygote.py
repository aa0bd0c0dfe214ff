"""A process that has imported what every rank imports, and forks one child for each requested rank.

Most of a rank's memory is imported modules. Forks share those pages until they write to them, and start at once.
`presim.capture.processes.forks` starts this as ``python -m presim.capture.zygote FD [WHAT SCRIPT OWN]``. FD is one end
of a socket pair:

    zygote   -> launcher   "ready", once, after all imports
    launcher -> zygote     a `ForkRequest` with three descriptors: a pipe to the launcher, the rank's stdout and stderr
    rank     -> pipe       its process id, as a line
    zygote   -> pipe       its exit code, as a line, when it has ended

Torch is always imported before the script (`runner`), and torch._dynamo, which every optimizer imports. Nothing of the
script runs here. With SCRIPT, the packages that it imports are imported too (`presim.capture.script.preimport`). WHAT
is ``script`` or ``module`` for the imports at its beginning, or ``recipe`` for those of its whole top level. OWN lists
the environment variables that differ per rank.

Whatever differs per rank (variables, log, seeds) is set in the fork. If an import has started a thread, which a fork
would lack, or has used the device, this process exits silently and the launcher starts ranks as separate processes.
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
from presim.capture.processes.rank_process import end_with_parent
from presim.capture.script.control import ForkRequest
from presim.capture.setup.environment import require_torch
from presim.capture.setup.hook_build import ensure_hook

if TYPE_CHECKING:
    from presim.capture.observers import ImportObservers

_READY = b"ready"
_REQUEST_BYTES = 1 << 17
_ARROW_ALLOCATOR = "JE_ARROW_MALLOC_CONF"  # read when pyarrow is imported


class _Children:
    """The live ranks: pidfd -> process id and pipe to the launcher."""

    def __init__(self) -> None:
        self.alive: dict[int, tuple[int, int]] = {}

    def add(self, process: int, pipe: int) -> int:
        """Add a rank; returns a descriptor that becomes readable when it ends."""
        file = os.pidfd_open(process)
        self.alive[file] = process, pipe
        return file

    def reap(self, file: int) -> None:
        """Send the exit code of a rank that has ended to the launcher."""
        process, pipe = self.alive.pop(file)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        os.write(pipe, b"%d\n" % code)
        os.close(pipe)
        os.close(file)

    def close_siblings(self) -> None:
        """Close the siblings' descriptors in a child."""
        for file, (_, pipe) in self.alive.items():
            os.close(pipe)
            os.close(file)


def _can_fork() -> bool:
    is_single_threaded = len(os.listdir("/proc/self/task")) == 1
    return is_single_threaded and bool(_shim().presim_is_unused()) and _can_fork_use_cuda()


def _can_fork_use_cuda() -> bool:
    """Whether a fork can initialise CUDA.

    PyTorch forbids it to forks of a process that has queried devices, and shows that only in the fork.
    """
    process = os.fork()
    if process == 0:
        os._exit(sys.modules["torch"]._C._cuda_isInBadFork())
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0


def _shim() -> Any:
    return ctypes.CDLL("libpresim_shim.so")


def serve(channel: socket.socket, installed: ImportObservers | None = None) -> NoReturn:
    """Fork for each request until the launcher closes the channel."""
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
                children.close_siblings()
                channel.close()
                _run_rank(zygote, msgspec.json.decode(message, type=ForkRequest), (pipe, *output), installed)
            for output_file in output:
                os.close(output_file)
            if process is None:
                os.close(pipe)
            else:
                poll.register(children.add(process, pipe), select.POLLIN)


def _fork() -> int | None:
    """Fork; None if the system cannot create another process, which the launcher detects and reports."""
    try:
        return os.fork()
    except OSError:
        return None


def _run_rank(zygote: int, request: ForkRequest, files: tuple[int, ...], installed: ImportObservers | None) -> NoReturn:
    """Run one rank in the fork."""
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
        _reset_process_state()
        runner.run(Path(request.control), installed)
    except BaseException:  # noqa: BLE001 - a fork must never continue as the zygote
        traceback.print_exc()
    finally:
        os._exit(1)


def _reset_process_state() -> None:
    """Reset state that separately started processes would not share: stream buffering and random seeds."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.reconfigure(line_buffering=stream is sys.stderr or stream.isatty())  # type: ignore[union-attr]
    numbers = sys.modules.get("numpy.random")
    if numbers is not None:
        numbers.seed()  # otherwise all ranks draw the same numbers; Python's own generator reseeds itself in a fork
    sys.modules["torch"].default_generator.seed()


def _import_for_script(script_kind: str, script: str, rank_variables: str) -> ImportObservers:
    """Import what the script imports, after installing the observers that must come first."""
    from presim.capture.observers import ImportObservers
    from presim.capture.script.preimport import import_leading, preimport

    installed = ImportObservers(ensure_hook(require_torch()))
    if script_kind == "recipe":
        preimport(Path(script))
    else:
        import_leading(script, rank_variables.split(","), is_module=script_kind == "module")
    return installed


@contextlib.contextmanager
def _without_arrow_thread() -> Iterator[None]:
    """Keep pyarrow's allocator from starting a thread that returns memory, which forks would lack."""
    if _ARROW_ALLOCATOR in os.environ:
        yield
        return
    os.environ[_ARROW_ALLOCATOR] = "background_thread:false"
    try:
        yield
    finally:
        del os.environ[_ARROW_ALLOCATOR]


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Keep Python from collecting garbage while modules are imported, which takes a tenth of their time.

    Imports leave little garbage: 15,000 objects for PyTorch and transformers. To find them takes 0.4 s before the first
    fork, so they stay. The threshold is changed, so that a package that disables collections or sets a threshold has
    its way.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(0)
    try:
        yield
    finally:
        if gc.get_threshold()[0] == 0:
            gc.set_threshold(*thresholds)


def main() -> NoReturn:
    """Entry point. Arguments: the socket's descriptor and, optionally, what to import."""
    runner.leave_package_path()
    channel = socket.socket(fileno=int(sys.argv[1]))
    import presim.capture.observers  # noqa: F401 - imported for the forks
    from presim.capture.script.preimport import import_dynamo

    with _without_arrow_thread(), _without_collections():
        installed = _import_for_script(*sys.argv[2:5]) if len(sys.argv) > 2 else None
        import_dynamo()
    if not _can_fork():
        os._exit(0)
    gc.freeze()  # keeps garbage collection from writing to these pages, so that they stay shared
    channel.send(_READY)
    serve(channel, installed)


if __name__ == "__main__":
    main()
