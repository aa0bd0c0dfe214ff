"""Ctrl-C before the command line is there to catch it, and after its verb has ended."""

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


AT_THE_END = """
import atexit, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
def end(): os.kill(os.getpid(), signal.SIGINT)
class Last:
    def __del__(self, kill=os.kill, me=os.getpid(), number=signal.SIGINT): kill(me, number)
from presim.cli import main
if sys.argv[1] == "finalised":
    sys.kept = Last()  # modules are emptied after all that was registered for the exit
else:
    main.streams.prepare = lambda: atexit.register(end)  # as a module that the verb imports
main.main(["--version"])
"""


@pytest.mark.parametrize(("moment", "code", "errors"), [("exit", 130, "presim: interrupted\n"), ("finalised", 0, "")])
def test_after_the_verb_it_ends_without_a_signal(moment: str, code: int, errors: str) -> None:
    """While functions run at exit it ends the call; after those everything is written, and the call succeeds."""
    ended = subprocess.run([sys.executable, "-c", AT_THE_END, moment], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (code, errors)


DROPPED = """
import os, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)
class Dropped:
    def __del__(self): os.kill(os.getpid(), signal.SIGINT)
from presim.cli import main
def verb(**options):
    Dropped()
    for _ in range(3000): time.sleep(0.01)
main.cli.main = verb
main.main([])
"""


def test_in_a_destructor_it_is_not_dropped() -> None:
    ended = subprocess.run([sys.executable, "-c", DROPPED], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (130, "presim: interrupted\n")


SLOW_HOOK = DROPPED.replace(
    "main.cli.main = verb",
    """main.cli.main = verb
import threading
start = threading.Thread.start
def slow_start(thread):
    start(thread)
    time.sleep(0.2)
threading.Thread.start = slow_start""",
)


def test_it_is_not_delivered_while_the_last_one_is_dropped() -> None:
    """As on a busy machine, where the main thread does not run for a while."""
    ended = subprocess.run([sys.executable, "-c", SLOW_HOOK], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (130, "presim: interrupted\n")


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
