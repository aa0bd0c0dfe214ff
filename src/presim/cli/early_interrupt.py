"""Handle Ctrl-C before the command line can: while it is imported, and after its last verb has returned."""

from __future__ import annotations

import atexit
import os
import signal  # import nothing slow here: until the handler is installed, Ctrl-C prints a traceback


class EarlyInterrupt:
    """Context in which Ctrl-C exits as `presim.cli.main.run` does; an ignored or caught Ctrl-C stays so."""

    def __enter__(self) -> None:
        self._caught = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._caught:
            self._caught = _handled_by(_leave)

    def __exit__(self, *error: object) -> None:
        if self._caught:
            _handled_by(signal.default_int_handler)


def delivered_again() -> None:
    """Interrupt once more where Python drops Ctrl-C, as in a destructor or the callback of a weak reference."""
    import _thread
    import sys
    import threading

    before = sys.unraisablehook

    def hook(dropped: sys.UnraisableHookArgs) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            before(dropped)
            return
        timer = threading.Timer(0.01, _thread.interrupt_main)  # later: raised here, it would be dropped again
        timer.daemon = True
        timer.start()

    sys.unraisablehook = hook


def until_exit() -> None:
    """Make Ctrl-C exit as `presim.cli.main.run` does from now on, where it is not ignored or caught by others."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        _handled_by(_leave)


def ignored_at_last() -> None:
    """Ignore Ctrl-C when everything else that runs at exit has run. Call it early: the first registered runs last.

    Python's finalisation gives signals their default actions back, so Ctrl-C would end a finished call as a failed one.
    """
    atexit.register(_handled_by, signal.SIG_IGN)


def _handled_by(handler: object) -> bool:
    try:
        signal.signal(signal.SIGINT, handler)  # type: ignore[arg-type]
    except ValueError:  # not in the main thread, which never receives Ctrl-C
        return False
    return True


def _leave(number: int, frame: object) -> None:
    os.write(2, b"presim: interrupted\n")
    os._exit(130)
