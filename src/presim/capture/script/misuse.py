"""What the script does that CUDA would punish: copies beyond a block or into a freed one, indices out of range.

On a GPU such a program ends with a device-side assert, or reads and writes memory of others without a word. Here it
goes on, and the result says what it did and where.
"""

from __future__ import annotations

from presim.capture.script.current_line import calling_line
from presim.capture.script.hook import Hook

_MOST = 20  # places


class Misuse:
    """Each kind at each line once."""

    def __init__(self) -> None:
        self.sentences: dict[str, None] = {}

    def install(self, hook: Hook) -> None:
        """Before the script runs."""
        hook.tell_misuse(self._note)

    def _note(self, text: str) -> None:
        sentence = f"Misuse of the GPU at {calling_line()}: {text}."
        if len(self.sentences) < _MOST:
            self.sentences[sentence] = None
