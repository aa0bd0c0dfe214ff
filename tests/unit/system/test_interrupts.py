"""Signals that end a call are KeyboardInterrupts with their exit codes; what is finished by then is reported."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from presim.system import interrupts


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in interrupts.SIGNALS}
    for number in interrupts.SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    interrupts.install()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    interrupts.taken()


CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@pytest.mark.parametrize("number", CODES)
def test_a_signal_is_an_interrupt_with_the_shells_exit_code(number: int) -> None:
    with pytest.raises(KeyboardInterrupt) as raised:
        os.kill(os.getpid(), number)
    assert interrupts.exit_code(raised.value) == CODES[signal.Signals(number)]


def test_the_signal_is_known_behind_what_it_was_turned_into() -> None:
    error = ValueError("cleaning up")
    error.__context__ = interrupts.Interrupted(signal.SIGTERM)
    assert interrupts.exit_code(error) == 143


def test_a_signal_that_is_ignored_stays_so() -> None:
    """As `nohup` leaves SIGHUP."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interrupts.install()
    os.kill(os.getpid(), signal.SIGHUP)


def test_a_worker_takes_one_signal_and_ignores_those_after_it() -> None:
    for number in interrupts.SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as a process that was spawned has it
    interrupts.install(interrupts.raise_first)
    with pytest.raises(interrupts.Interrupted):
        os.kill(os.getpid(), signal.SIGTERM)
    for number in interrupts.SIGNALS:
        os.kill(os.getpid(), number)


def test_what_is_finished_before_a_signal_is_kept() -> None:
    finished = []
    with interrupts.caught() as stop:
        for row in range(5):
            if row == 3:
                os.kill(os.getpid(), signal.SIGTERM)
            finished.append(row)
    stop.unless(finished)
    assert finished == [0, 1, 2]
    assert stop.is_partial
    error = interrupts.taken()
    assert interrupts.exit_code(error) == 143
    assert interrupts.taken() is None


def test_a_signal_before_anything_is_finished_ends_the_call() -> None:
    with interrupts.caught() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(interrupts.Interrupted):
        stop.unless([])


def test_a_block_that_ends_is_not_partial() -> None:
    with interrupts.caught() as stop:
        pass
    stop.unless([])
    assert not stop.is_partial


def test_a_block_says_what_an_interrupt_in_it_loses() -> None:
    """The innermost block is nearest to the work; the note is known behind what the interrupt was turned into."""
    with (
        pytest.raises(KeyboardInterrupt) as raised,
        interrupts.noted("all is lost"),
        interrupts.noted("a file is lost"),
    ):
        os.kill(os.getpid(), signal.SIGTERM)
    error = ValueError("cleaning up")
    error.__cause__ = raised.value
    assert interrupts.note_of(error) == "a file is lost"
    assert interrupts.note_of(KeyboardInterrupt()) == ""


def test_an_interrupt_ends_a_call_that_wants_nothing_partial() -> None:
    with pytest.raises(interrupts.Interrupted), interrupts.caught(is_wanted=False):
        os.kill(os.getpid(), signal.SIGTERM)
    assert interrupts.taken() is None
