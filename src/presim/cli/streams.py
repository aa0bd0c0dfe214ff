"""Robust standard streams: closed, full, with another encoding, or with a reader that has gone."""

from __future__ import annotations

import errno
import io
import os
import sys

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def prepare() -> None:
    """Redirect closed streams to /dev/null, so that no file reuses their descriptor.

    Print unencodable characters as ``?``.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def silence() -> None:
    """Silence stdout: Python flushes it at exit and would report the closed pipe or full disk again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
