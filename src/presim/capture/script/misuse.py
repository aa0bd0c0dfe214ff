"""Collect misuse of CUDA: copies beyond a block or into a freed one, indices out of range.

On a GPU, such a program ends with a device-side assert or silently accesses foreign memory. The emulated device goes
on, and the result reports what happened and where.
"""

from __future__ import annotations

from presim.capture.script.current_line import calling_line
from presim.capture.script.hook import Hook

_MAX_SENTENCES = 20  # sentences kept


class Misuse:
    """Collects each kind of misuse once per line."""

    def __init__(self) -> None:
        self.sentences: dict[str, None] = {}

    def install(self, hook: Hook) -> None:
        """Install before the script runs."""
        hook.set_misuse_callback(self._note)

    def _note(self, text: str) -> None:
        sentence = f"Misuse of the GPU at {calling_line()}: {text}."
        if len(self.sentences) < _MAX_SENTENCES:
            self.sentences[sentence] = None
