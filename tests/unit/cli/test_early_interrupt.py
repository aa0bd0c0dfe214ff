"""Ctrl-C before the command line is there to catch it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from presim.cli import early_interrupt

IMPORTS = """
import builtins, os, signal
signal.signal(signal.SIGINT, signal.{handler})
own = builtins.__import__
def interrupted(name, *rest):
    if name == "click":
        os.kill(os.getpid(), signal.SIGINT)
    return own(name, *rest)
builtins.__import__ = interrupted
from presim.cli import main
main.main(["--version"])
"""


@pytest.mark.parametrize(
    ("handler", "code", "errors"), [("default_int_handler", 130, "presim: interrupted\n"), ("SIG_IGN", 0, "")]
)
def test_while_it_is_imported_it_ends_without_a_traceback(handler: str, code: int, errors: str) -> None:
    """In the background of a shell, which ignores Ctrl-C for it, it goes on."""
    command = [sys.executable, "-c", IMPORTS.format(handler=handler)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (code, errors)


def test_afterwards_it_is_what_it_was() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with early_interrupt.EarlyInterrupt():
            assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_in_another_thread_nothing_changes() -> None:
    entered = []

    def enter() -> None:
        with early_interrupt.EarlyInterrupt():
            entered.append(signal.getsignal(signal.SIGINT))

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert entered == [signal.default_int_handler]
