"""A process that evaluates points: ``python -m presim.search.trials.worker``, requests in, answers out.

The first message is the job, each further one a point. Messages are MessagePack behind their length (four bytes). It
ends when its input does, so that nothing is left behind by a search that is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys
from typing import IO

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


_MMAP_THRESHOLD, _LARGE = -3, 1 << 20  # glibc's number of that parameter, and bytes


def _keep_little() -> None:
    """Memory of large arrays goes back to the system when they are freed; glibc would keep up to 32 MiB of each."""
    with contextlib.suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE)


def _give_back() -> None:
    """What is left of the last plan goes back: one with 512 micro-batches left 2 GB behind."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def main() -> None:
    """Answer until the input ends."""
    from presim.search.trials.evaluator import quiet_environment

    quiet_environment()
    _keep_little()
    # Whatever a library prints must not get between the answers.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    import msgspec

    from presim.search.trials.evaluator import Evaluator
    from presim.search.trials.job import Job, Reply
    from presim.search.trials.trial import Point

    first = receive(sys.stdin.buffer)
    if first is None:
        return
    evaluator = Evaluator(msgspec.msgpack.decode(first, type=Job))
    while (data := receive(sys.stdin.buffer)) is not None:
        point = msgspec.msgpack.decode(data, type=Point)
        try:
            reply = evaluator.evaluate(point)
        except Exception as error:  # noqa: BLE001  a bug in one plan must not end a search of thousands; it is shown
            reply = Reply(fate="failed", words=f"presim's own error: {type(error).__name__}: {error}"[:400])
        _give_back()
        try:
            send(out, msgspec.msgpack.encode(reply))
        except BrokenPipeError:  # the search was killed
            os._exit(0)


if __name__ == "__main__":
    main()
