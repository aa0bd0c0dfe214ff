"""The command that this process runs, as its pages name it."""

from __future__ import annotations

import contextlib
import contextvars
import shlex
from collections.abc import Iterator, Sequence

_command_line: contextvars.ContextVar[str] = contextvars.ContextVar("command_line", default="")


@contextlib.contextmanager
def running(words: Sequence[str] | str) -> Iterator[None]:
    """Name the command for the pages that are written within: words after ``presim``, or a line as a shell takes it."""
    line = words if isinstance(words, str) else shlex.join(["presim", *words])
    token = _command_line.set(line)
    try:
        yield
    finally:
        _command_line.reset(token)


def current() -> str:
    """The command as a shell takes it; empty: it is not known."""
    return _command_line.get()
