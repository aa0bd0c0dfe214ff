"""When Ctrl-C counts."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from presim.capture import ctrl_c


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def interrupted(done: list[str], error: Exception | None = None) -> None:
    with ctrl_c.delayed():
        interrupt()
        done.append("the rest of the block")
        if error:
            raise error


def test_a_delayed_ctrl_c_counts_at_the_end_of_the_block() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(done)
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_ignored_one_never_counts() -> None:
    with ctrl_c.ignored():
        interrupt()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("block", [ctrl_c.delayed, ctrl_c.ignored])
def test_other_threads_change_nothing(block: Callable[[], AbstractContextManager[None]]) -> None:
    found = []

    def enter() -> None:
        with block():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


def test_an_error_within_is_what_counts() -> None:
    """An interrupt that came first is not raised over it."""
    with pytest.raises(ValueError, match="mine"):
        interrupted([], ValueError("mine"))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
