"""Defer or ignore Ctrl-C and the other signals that end a call while processes are started and ended."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from presim.system.interrupts import SIGNALS


@contextlib.contextmanager
def delayed() -> Iterator[None]:
    """Deliver a signal only when the block has ended. No effect outside the main thread, which alone gets signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pending_signals: list[tuple[int, FrameType | None]] = []
    before = _handlers()
    _set(dict.fromkeys(before, lambda number, frame: pending_signals.append((number, frame))))
    try:
        yield
    finally:
        _set(before)
    for number, frame in pending_signals[:1]:
        before[number](number, frame)


@contextlib.contextmanager
def ignored() -> Iterator[None]:
    """Ignore signals within the block. No effect outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = _handlers()
    _set(dict.fromkeys(before, signal.SIG_IGN))
    try:
        yield
    finally:
        _set(before)


def _handlers() -> dict[int, Callable[[int, FrameType | None], Any]]:
    """The handlers in Python. A signal that is ignored, or ends the process at once, stays as it is."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    return {number: handler for number, handler in handlers.items() if callable(handler)}


def _set(handlers: dict[int, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
