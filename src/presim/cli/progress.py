"""Progress: a line on a terminal, and elsewhere a line on standard error every ten seconds."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO

LINE_EVERY_S = 10.0  # off a terminal
Say = Callable[[str], None]


@contextlib.contextmanager
def progress(quiet: bool = False, *, lines: bool = False) -> Iterator[Say]:
    """Yield a function that shows the current activity on standard error, so that a script's output stays intact.

    On a terminal the line is cleared before other output. ``lines``: elsewhere
    a line says it every ten seconds; else nothing does.
    """
    if quiet or not (lines or sys.stderr.isatty()):
        yield lambda text: None
    elif sys.stderr.isatty():
        with _on_terminal() as say:
            yield say
    else:
        with _in_lines(sys.stderr, LINE_EVERY_S) as say:
            yield say


@contextlib.contextmanager
def _on_terminal() -> Iterator[Say]:
    from rich.console import Console

    with Console(stderr=True).status("") as status:
        yield lambda text: status.update(f"[dim]{text} …[/dim]")


@contextlib.contextmanager
def _in_lines(file: IO[str], every_s: float) -> Iterator[Say]:
    begin_s, has_ended = time.monotonic(), threading.Event()
    activity = [""]

    def write_lines() -> None:
        while not has_ended.wait(every_s):
            if activity[0]:
                file.write(f"presim: {activity[0]} ({time.monotonic() - begin_s:.0f} s)\n")
                file.flush()

    writer = threading.Thread(target=write_lines, daemon=True)
    writer.start()
    try:
        yield lambda text: activity.__setitem__(0, text)
    finally:
        has_ended.set()
        writer.join()
