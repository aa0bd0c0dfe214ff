"""Run a small script and collect where in its loops it calls ``event``."""

from __future__ import annotations

from collections.abc import Callable

from presim.capture.steps.marks import Event, Mark
from presim.capture.steps.positions import LoopPositions, Position

FILE = "script.py"


def positions(code: str) -> list[tuple[str, Position]]:
    """Each call of ``event(name)`` in the code, with its position in the loops of the code alone."""
    follow = LoopPositions()
    calls: list[tuple[str, Position]] = []
    outside: list[int] = []  # loops around the code: of whatever runs this test

    def event(name: str) -> None:
        position = follow.now()
        if not outside:
            outside.append(sum(not key.startswith(FILE) for key in position.nest))
        nest = tuple(key.removeprefix(f"{FILE}:") for key in position.nest[outside[0] :])
        level = max(0, position.changed - outside[0])
        line = position.line.removeprefix(f"{FILE}:")
        calls.append((name, Position(nest, level, position.is_entered, line)))

    exec(compile(code, FILE, "exec"), {"event": event})
    return calls


def marks(code: str, records: Callable[[str], int] = lambda name: 10) -> list[Mark]:
    """The marks of a script that calls ``event("model")``, ``event("update")`` and so on.

    ``records``: records of the log that follow an event.
    """
    written: list[Mark] = []
    count = 0
    for name, position in positions(code):
        kind, _, first = name.partition(" ")
        written.append(Mark(count, Event(kind), position, int(first or kind == "model")))
        count += records(kind)
    return written
