"""Handle Ctrl-C while the command line itself is being imported."""

from __future__ import annotations

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


def _handled_by(handler: object) -> bool:
    try:
        signal.signal(signal.SIGINT, handler)  # type: ignore[arg-type]
    except ValueError:  # not in the main thread, which never receives Ctrl-C
        return False
    return True


def _leave(number: int, frame: object) -> None:
    os.write(2, b"presim: interrupted\n")
    os._exit(130)
