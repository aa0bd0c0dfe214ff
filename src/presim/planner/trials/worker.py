"""Worker process that evaluates points: ``python -m presim.planner.trials.worker``.

It reads requests from stdin and writes replies to stdout. The first message is the job, each further message a point.
Messages are MessagePack with a four-byte length prefix. The process exits when its input ends, so a killed search
leaves no processes behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import signal
import struct
import sys
import threading
from collections.abc import Iterator
from typing import IO

from presim.errors import ExitCode
from presim.system.files import decode_messagepack

_HEADER = struct.Struct(">I")


def send(file: IO[bytes], data: bytes) -> None:
    """Write one message."""
    file.write(_HEADER.pack(len(data)) + data)
    file.flush()


def receive(file: IO[bytes]) -> bytes | None:
    """Read one message; None at the end."""
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    (size,) = _HEADER.unpack(header)
    data = file.read(size)
    return data if len(data) == size else None


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's M_TRIM_THRESHOLD and M_MMAP_THRESHOLD
_KEPT = 1 << 30  # bytes


def _keep_freed_memory() -> None:
    """Make glibc reuse the memory of freed arrays within an evaluation; else each array's pages are made anew."""
    with contextlib.suppress(AttributeError, OSError):  # not glibc
        for parameter in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            ctypes.CDLL(None).mallopt(parameter, _KEPT)


def _trim_heap() -> None:
    """Return free heap memory to the system: a plan with 512 micro-batches left 2 GB."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


class _Points:
    """Reads points in a thread, and interrupts the main thread if the input ends before all of them are evaluated."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._read, self._evaluated = 0, 0
        threading.Thread(target=self._reads, daemon=True).start()

    def _reads(self) -> None:
        while (data := receive(sys.stdin.buffer)) is not None:
            self._read += 1
            self._waiting.put(data)
        self._waiting.put(None)
        if self._evaluated < self._read:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def __iter__(self) -> Iterator[bytes]:
        while (data := self._waiting.get()) is not None:
            yield data
            self._evaluated += 1


def main() -> None:
    """Answer requests until the input ends."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it starts behind it
    try:
        _answer()
    except KeyboardInterrupt:
        os._exit(ExitCode.INTERRUPTED)


def _answer() -> None:
    from presim.planner.trials.point_evaluator import single_threaded_environment

    single_threaded_environment()
    _keep_freed_memory()
    # Output of libraries must not mix with the replies.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    import msgspec

    from presim.planner.trials.point_evaluator import PlanEvaluator
    from presim.planner.trials.trial import Point
    from presim.planner.trials.trial_messages import Reply, Subject

    first = receive(sys.stdin.buffer)
    if first is None:
        return
    evaluator = PlanEvaluator(decode_messagepack(first, Subject))
    for data in _Points():
        point = decode_messagepack(data, Point)
        try:
            reply = evaluator.evaluate(point)
        except Exception as error:  # noqa: BLE001  a bug in one plan must not end the search
            reply = Reply(fate="failed", words=f"internal error of presim: {type(error).__name__}: {error}"[:400])
        _trim_heap()
        try:
            send(out, msgspec.msgpack.encode(reply))
        except BrokenPipeError:  # the search was killed
            os._exit(0)


if __name__ == "__main__":
    main()
