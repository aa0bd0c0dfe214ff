"""Deferring and ignoring Ctrl-C."""

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


def test_a_delayed_ctrl_c_is_delivered_at_the_end_of_the_block() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(done)
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_ignored_ctrl_c_is_not_delivered() -> None:
    with ctrl_c.ignored():
        interrupt()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("block", [ctrl_c.delayed, ctrl_c.ignored])
def test_other_threads_are_not_affected(block: Callable[[], AbstractContextManager[None]]) -> None:
    found = []

    def enter() -> None:
        with block():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


def test_an_error_in_the_block_takes_precedence() -> None:
    """A delayed interrupt does not replace the error."""
    with pytest.raises(ValueError, match="mine"):
        interrupted([], ValueError("mine"))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
