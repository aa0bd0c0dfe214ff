"""Signals that end a call: Ctrl-C (SIGINT), SIGTERM of Slurm, `timeout` and CI, and SIGHUP of a closed terminal.

All of them raise KeyboardInterrupt in the main thread, so that what cleans up after Ctrl-C cleans up after all.
A signal that was ignored when the process started (`nohup`, a shell's background) stays ignored.
"""

from __future__ import annotations

import contextlib
import os
import signal  # import nothing slow here: `presim.cli.early_interrupt` imports this before anything else
from collections.abc import Callable, Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A signal other than Ctrl-C ends the call. ``number``: which."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


def number_of(error: BaseException | None) -> int:
    """The signal that raised a KeyboardInterrupt, or what it was turned into; SIGINT where nothing else is known."""
    while error is not None:
        if isinstance(error, Interrupted):
            return error.number
        error = error.__cause__ or error.__context__
    return signal.SIGINT


def exit_code(error: BaseException | None) -> int:
    """The exit code after an interrupt, as shells have it: 128 and the signal's number."""
    return 128 + number_of(error)


@contextlib.contextmanager
def noted(note: str) -> Iterator[None]:
    """Have the command line say a clause after an interrupt in the block: what is lost or written, and how to go on."""
    try:
        yield
    except KeyboardInterrupt as error:
        error.add_note(note)
        raise


@contextlib.contextmanager
def simulating(saved: str | os.PathLike[str] | None) -> Iterator[None]:
    """Have the command line say after an interrupt in the block where the simulated job is, if that has been saved."""
    if saved is None:
        yield
        return
    with noted(f"the job is in {os.fspath(saved)}: go on with `presim simulate {os.fspath(saved)}`"):
        yield


def note_of(error: BaseException | None) -> str:
    """The clause of the innermost block of `noted` that an interrupt has left; empty where there is none."""
    while error is not None:
        if notes := getattr(error, "__notes__", ()):
            return str(notes[0])
        error = error.__cause__ or error.__context__
    return ""


def raise_interrupted(number: int, frame: FrameType | None) -> None:
    """The handler of a signal that ends the call."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise Interrupted(number)


def raise_first(number: int, frame: FrameType | None) -> None:
    """As `raise_interrupted`; signals after the first are ignored, so that none interrupts how the process ends."""
    for later in SIGNALS:
        signal.signal(later, signal.SIG_IGN)
    raise_interrupted(number, frame)


def install(handler: Callable[[int, FrameType | None], None] = raise_interrupted) -> None:
    """Have ``handler`` take SIGTERM and SIGHUP, and SIGINT, where they would end the process without a word.

    Python's own handler of SIGINT stays unless another ``handler`` is given.
    """
    defaults = [signal.SIG_DFL] if handler is raise_interrupted else [signal.SIG_DFL, signal.default_int_handler]
    for number in SIGNALS:
        if signal.getsignal(number) in defaults:
            signal.signal(number, handler)


class Stop:
    """Whether an interrupt ended a block of `caught`."""

    error: KeyboardInterrupt | None = None

    @property
    def is_partial(self) -> bool:
        """Whether the block did not reach its end, so that what it collected is partial."""
        return self.error is not None

    def unless(self, finished: object) -> None:
        """Interrupt after all where nothing is finished that could be reported."""
        if self.error is not None and not finished:
            raise self.error


@contextlib.contextmanager
def caught(is_wanted: bool = True) -> Iterator[Stop]:
    """End the block at an interrupt and go on behind it, to report what is finished. A second interrupt is not caught.

    ``is_wanted``: False for callers that have nobody to report to; the interrupt then ends the call.

    The command line then ends with the signal's exit code, whatever the verb returns (`taken`). A verb collects what is
    finished inside the block, calls `Stop.unless` behind it, and marks what it writes as partial.
    """
    stop = Stop()
    try:
        yield stop
    except KeyboardInterrupt as error:
        if not is_wanted:
            raise
        stop.error = error
        _caught.append(error)


_caught: list[KeyboardInterrupt] = []  # of this call


def is_pending() -> bool:
    """Whether a block of `caught` ended with an interrupt in this call."""
    return bool(_caught)


def taken() -> KeyboardInterrupt | None:
    """The interrupt that a block of `caught` ended with since the last call of this, if any; it is forgotten."""
    error = _caught[0] if _caught else None
    _caught.clear()
    return error
