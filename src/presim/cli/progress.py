"""Progress: a line on a terminal, and elsewhere a line on standard error every ten seconds."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO

LINE_EVERY_S = 10.0  # off a terminal
_SILENT_S = 2.0  # at most, on a terminal
Say = Callable[[str], None]


class _Verb:
    """What the process's verb does now, for the lines of `working`."""

    is_announced = False  # only the command line's own process has such lines
    activity = ""
    progress_count = 0  # of contexts that show progress themselves


def announce_verbs() -> None:
    """Let `working` write lines in this process."""
    _Verb.is_announced = True


@contextlib.contextmanager
def working(verb: str, quiet: bool = False) -> Iterator[None]:
    """Say on standard error that a verb still works: on a terminal after two seconds, then every ten.

    While a `progress` shows lines of its own, there are none.
    """
    if quiet or not _Verb.is_announced:
        yield
        return
    first_s = _SILENT_S if sys.stderr.isatty() else LINE_EVERY_S
    with _activity(verb), _in_lines(sys.stderr, LINE_EVERY_S, _activity_of_verb, first_s):
        yield


def _activity_of_verb() -> str:
    return "" if _Verb.progress_count else _Verb.activity


@contextlib.contextmanager
def _activity(text: str) -> Iterator[None]:
    earlier = _Verb.activity
    _Verb.activity = text
    try:
        yield
    finally:
        _Verb.activity = earlier


@contextlib.contextmanager
def progress(quiet: bool = False, *, lines: bool = False) -> Iterator[Say]:
    """Yield a function that shows the current activity on standard error, so that a script's output stays intact.

    On a terminal the line is cleared before other output. ``lines``: elsewhere a line says it every ten seconds; else
    the lines of `working` do.
    """
    if quiet or not (lines or sys.stderr.isatty()):
        with _activity(_Verb.activity):
            yield lambda text: setattr(_Verb, "activity", text)
        return
    _Verb.progress_count += 1
    try:
        with _on_terminal() if sys.stderr.isatty() else _said_in_lines() as say:
            yield say
    finally:
        _Verb.progress_count -= 1


@contextlib.contextmanager
def _on_terminal() -> Iterator[Say]:
    from rich.console import Console

    with Console(stderr=True).status("") as status:
        yield lambda text: status.update(f"[dim]{text} …[/dim]")


@contextlib.contextmanager
def _said_in_lines() -> Iterator[Say]:
    activity = [""]
    with _in_lines(sys.stderr, LINE_EVERY_S, lambda: activity[0], LINE_EVERY_S):
        yield lambda text: activity.__setitem__(0, text)


@contextlib.contextmanager
def _in_lines(file: IO[str], every_s: float, activity: Callable[[], str], first_s: float) -> Iterator[None]:
    """Write a line with the activity after some time and then regularly; none while it is empty."""
    begin_s, has_ended = time.monotonic(), threading.Event()

    def write_lines() -> None:
        wait_s = first_s
        while not has_ended.wait(wait_s):
            wait_s = every_s
            if text := activity():
                file.write(f"presim: {text} ({time.monotonic() - begin_s:.0f} s)\n")
                file.flush()

    writer = threading.Thread(target=write_lines, daemon=True)
    writer.start()
    try:
        yield
    finally:
        has_ended.set()
        writer.join()
