"""Standard output and error as they may be: closed, full, of another encoding, or read by one who has had enough."""

from __future__ import annotations

import errno
import io
import os
import sys

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def prepare() -> None:
    """What is closed leads nowhere, so that no file of ours takes its number; what cannot be encoded is a ``?``."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def silence() -> None:
    """Python flushes stdout at exit, which would complain about the closed pipe or full disk once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
