"""Handle signals before the command line can: while it is imported, and after its last verb has returned."""

from __future__ import annotations

import atexit
import os
import signal  # import nothing slow here: until the handler is installed, Ctrl-C prints a traceback
from types import CodeType, FrameType

from presim.system import interrupts

_DEFAULTS = (signal.SIG_DFL, signal.default_int_handler)
_BETWEEN_LOOKS_S = 0.01  # of a thread at what the main thread runs


class EarlyInterrupt:
    """Context in which a signal exits as `presim.cli.main.run` does; ignored or caught signals stay so."""

    def __enter__(self) -> None:
        self._before = {number: signal.getsignal(number) for number in _default_signals()}
        self._is_set = all(_handled_by(number, _leave) for number in self._before)

    def __exit__(self, *error: object) -> None:
        if self._is_set:
            for number, handler in self._before.items():
                _handled_by(number, handler)


def delivered_again() -> None:
    """Interrupt once more where Python drops the exception, as in a destructor or the callback of a weak reference."""
    import _thread
    import sys
    import threading
    import time

    before, main_thread = sys.unraisablehook, threading.main_thread().ident or 0

    def hook(dropped: sys.UnraisableHookArgs) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            before(dropped)
            return
        number = interrupts.number_of(dropped.exc_value)
        threading.Thread(target=interrupt_behind_hook, args=(number,), daemon=True).start()

    def interrupt_behind_hook(number: int) -> None:
        """Interrupt the main thread when it has left the hook: raised there, the exception is dropped again."""
        time.sleep(_BETWEEN_LOOKS_S)
        while _is_in(hook.__code__, sys._current_frames().get(main_thread)):
            time.sleep(_BETWEEN_LOOKS_S)
        _thread.interrupt_main(signal.Signals(number))

    sys.unraisablehook = hook


def _is_in(code: CodeType, frame: FrameType | None) -> bool:
    """Whether a frame or one of its callers runs this code."""
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


def until_exit() -> None:
    """Make signals exit as `presim.cli.main.run` does from now on, where they are not ignored or caught by others."""
    for number in _default_signals():
        _handled_by(number, _leave)


def ignored_at_last() -> None:
    """Ignore signals when everything else that runs at exit has run. Call it early: the first registered runs last.

    Python's finalisation gives signals their default actions back, so they would end a finished call as a failed one.
    """
    for number in interrupts.SIGNALS:
        atexit.register(_handled_by, number, signal.SIG_IGN)


def _default_signals() -> list[int]:
    """The signals that nobody but presim catches."""
    ours = (*_DEFAULTS, interrupts.raise_interrupted)
    return [number for number in interrupts.SIGNALS if signal.getsignal(number) in ours]


def _handled_by(number: int, handler: object) -> bool:
    try:
        signal.signal(number, handler)  # type: ignore[arg-type]
    except ValueError:  # not in the main thread, which alone receives signals
        return False
    return True


def _leave(number: int, frame: object) -> None:
    os.write(2, b"presim: interrupted\n")
    os._exit(128 + number)
