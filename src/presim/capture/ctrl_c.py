"""Defer or ignore Ctrl-C while processes are started and ended."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def delayed() -> Iterator[None]:
    """Deliver a Ctrl-C only when the block has ended. No effect outside the main thread, which alone gets signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came and callable(before):
        before(*came[0])


@contextlib.contextmanager
def ignored() -> Iterator[None]:
    """Ignore Ctrl-C within the block. No effect outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
