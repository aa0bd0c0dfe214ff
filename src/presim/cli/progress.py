"""A line that says what is being done, on a terminal only."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Gives a function that shows what is being done; shows nothing where nobody watches.

    The line is written to standard error and wiped before anything else is printed, so that what a script prints in
    the meantime stays as it is.
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
