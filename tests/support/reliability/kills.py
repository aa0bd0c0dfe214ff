"""Kills at chosen points: a process that ends, as by SIGKILL, right before its n-th change of the file system."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from presim.cli import main
from support.reliability.campaign import run_quietly

_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.truncate", "os.link", "os.rmdir", "tempfile.mkstemp"}


def changes(arguments: Sequence[str], folder: Path) -> int:
    """How many points there are at which a command line could be killed; it runs to its end."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        found = 0

        def count(event: str, args: tuple[Any, ...]) -> None:
            nonlocal found
            found += _is_change(event, args)

        sys.addaudithook(count)
        try:
            run_quietly(lambda: main.run(list(arguments)), folder)
            os.write(writing, str(found).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return int(text)


def killed(arguments: Sequence[str], folder: Path, point: int) -> bool:
    """Kill a command line at a point; False where it ended before."""
    child = os.fork()
    if not child:
        left = point

        def count(event: str, args: tuple[Any, ...]) -> None:
            nonlocal left
            if not _is_change(event, args):
                return
            left -= 1
            if left == -1:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        try:
            run_quietly(lambda: main.run(list(arguments)), folder)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def _is_change(event: str, args: tuple[Any, ...]) -> bool:
    if event == "open":
        _, mode, flags = args
        return bool(isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR) and mode != "r")
    return event in _CHANGES
