"""Forks the first processes of captures for `support.preloaded`: ``python -m support.preloading_server LISTENER``.

Variables that libraries read when they are loaded cannot change in a fork. So there is a base, a process with
PyTorch's imports, for the first such environment and each that has been asked for twice; what else is asked for once
starts as ever.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from support.preloaded import PYTHON_PATH, import_variables

_MAX_BASES = 4  # each takes half a gigabyte
_REQUEST_BYTES = 1 << 12
_FIRST_FREE = 100  # descriptors from here on are nobody's
_IMPORTS_S = 120.0


def main() -> None:
    """The server, or with BASE as its first argument a base.

    Forks leave the loop in which they are made: presim would take it for the script's.
    """
    if sys.argv[1] == "BASE":
        _run(os.getpid(), *_serve_forks(socket.socket(fileno=int(sys.argv[2]))))
    _serve(socket.socket(fileno=int(sys.argv[1])))


def _serve(listener: socket.socket) -> NoReturn:
    bases: dict[str, socket.socket] = {}
    requests: Counter[str] = Counter()
    while True:
        channel, _ = listener.accept()
        message, files, _, _ = socket.recv_fds(channel, _REQUEST_BYTES, 8)
        environment = json.loads(Path(message.decode()).read_text())["environment"] if message else {}
        variables = import_variables(environment)
        key = json.dumps(variables, sort_keys=True)
        requests[key] += 1
        if key not in bases and (requests[key] > 1 or not bases) and len(bases) < _MAX_BASES:
            bases[key] = _start_base(variables)
        try:
            socket.send_fds(bases[key], [message], [channel.fileno(), *files])
        except (KeyError, OSError):
            channel.send(b"0")
        channel.close()
        for file in files:
            os.close(file)


def _start_base(variables: dict[str, str]) -> socket.socket:
    """Start a base; requests to one that has failed are refused, as its end of the channel is closed."""
    from presim.capture.processes.rank_process import child_of

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", "support.preloading_server", "BASE", str(theirs.fileno())],
            env=variables | {"PYTHONPATH": PYTHON_PATH},
            pass_fds=(theirs.fileno(),),
            preexec_fn=child_of(os.getpid()),
        )
    ours.settimeout(_IMPORTS_S)
    ours.recv(64)  # empty where it cannot fork
    ours.settimeout(None)
    return ours


def _serve_forks(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork for each request; returns the request and its descriptors, in the fork."""
    from presim.capture import zygote
    from presim.capture.script.preimport import import_dynamo

    import_module("presim.capture.observers")
    with zygote._without_arrow_thread():
        import_dynamo()
    sys.path[:] = [path for path in sys.path if path not in ("", os.getcwd(), *PYTHON_PATH.split(":"))]
    if not zygote._can_fork():
        os._exit(0)
    gc.collect()
    gc.freeze()
    channel.send(b"ready")
    replies = dict[int, tuple[int, int]]()  # pidfd -> process, channel to who asked
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    while True:
        for file, _ in poll.poll():
            if file != channel.fileno():
                poll.unregister(file)
                process, reply = replies.pop(file)
                _answer(reply, os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
                os.close(reply)
                os.close(file)
                continue
            message, files, _, _ = socket.recv_fds(channel, _REQUEST_BYTES, 9)
            if not message:
                os._exit(0)
            request, reply = json.loads(Path(message.decode()).read_text()), files[0]
            process = os.fork()
            if process == 0:
                for other, (_, other_reply) in replies.items():
                    os.close(other)
                    os.close(other_reply)
                channel.close()
                return request, files
            _answer(reply, process)
            for passed in files[1:]:
                os.close(passed)
            replies[os.pidfd_open(process)] = process, reply
            poll.register(list(replies)[-1], select.POLLIN)


def _answer(reply: int, number: int) -> None:
    channel = socket.socket(fileno=os.dup(reply))
    with channel, contextlib.suppress(OSError):  # who asked has ended
        channel.send(b"%d" % number)


def _run(base: int, request: dict[str, Any], files: list[int]) -> NoReturn:
    """The fork: what ``python -m MODULE ARGUMENTS`` does."""
    from presim.capture import zygote
    from presim.capture.processes.rank_process import end_with_parent

    try:
        os.setsid()
        end_with_parent(base)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        moved = [fcntl.fcntl(file, fcntl.F_DUPFD, _FIRST_FREE) for file in files[1:]]
        for file in files:
            os.close(file)
        for file, number in zip(moved, (0, 1, 2, *request["passed"]), strict=True):
            os.dup2(file, number)
            os.close(file)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["cwd"])
        zygote._shim().presim_rank_begins()
        ctypes.CDLL("libnccl.so.2").presim_ranks_begin()
        zygote._reset_process_state()
        sys.path[:0] = [request["cwd"], *filter(None, request["environment"].get("PYTHONPATH", "").split(":"))]
        module, *sys.argv[1:] = request["arguments"]
        import_module(module).main()
    except BaseException:  # noqa: BLE001 - a fork must never continue as the base
        traceback.print_exc()
    finally:
        os._exit(1)


if __name__ == "__main__":
    main()
