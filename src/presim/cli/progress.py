"""Progress line on a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the current activity; does nothing if stderr is not a terminal.

    The line goes to standard error and is cleared before other output, so that a script's output stays intact.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console

    console = Console(stderr=True)
    with console.status("") as status:

        def say(text: str) -> None:
            status.update(f"[dim]{text} …[/dim]")

        yield say
