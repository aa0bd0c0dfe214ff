"""The marks that a script leaves in its log: calls of models, updates of parameters, reads of data, replays of graphs.

They lie beside the records, in ``marks.tsv`` of the log's directory, one line each, so that they survive any end of the
process:

    1204  update  2  train.py:12|train.py:14  0  0  train.py:17

that is: number of records before it, event, `Position.changed` with ``+`` if that loop was entered, the loops around
it (``-``: none), two numbers whose meaning depends on the event, and `Position.line` (``-``: none).
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import os
from collections.abc import Iterator
from pathlib import Path

from presim.capture.steps.positions import Position

FILE = "marks.tsv"
_SEPARATOR = "|"


class Event(enum.Enum):
    """What a mark stands for, and what its two numbers are."""

    MODEL = "model"  # an outermost module is called; 1: with gradients, 1: parameters have changed since the last call
    INPUT = "input"  # it returned; tokens and samples of its input
    RESET = "reset"  # another module is taken to be the model: earlier inputs do not count
    BACKWARD = "backward"  # a backward pass begins
    OPTIMIZER = "optimizer"  # an optimizer begins to step
    UPDATE = "update"  # an optimizer has stepped; serial of its STEP record, 1: of a small part of the parameters
    REPLAY = "replay"  # a CUDA graph is replayed; 1: it holds a backward pass
    DATA = "data"  # the next batch is asked for


@dataclasses.dataclass(frozen=True)
class Mark:
    """One mark."""

    records: int  # number of records in the log before it
    event: Event
    position: Position
    first: int = 0
    second: int = 0

    def to_line(self) -> str:
        """The mark as a line of the file."""
        nest = _SEPARATOR.join(self.position.nest) or "-"
        changed = f"{self.position.changed}{'+' * self.position.is_entered}"
        numbers, line = (str(self.first), str(self.second)), self.position.line or "-"
        return "\t".join((str(self.records), self.event.value, changed, nest, *numbers, line)) + "\n"

    @staticmethod
    def from_line(line: str) -> Mark:
        """The mark of a line.

        Raises:
            ValueError: the line is incomplete.
        """
        records, event, changed, nest, first, second, code_line = line.split("\t")
        loops = () if nest == "-" else tuple(nest.split(_SEPARATOR))
        code_line = "" if code_line == "-" else code_line
        position = Position(loops, int(changed.rstrip("+")), changed.endswith("+"), code_line)
        return Mark(int(records), Event(event), position, int(first), int(second))


class MarkWriter:
    """Writes each mark at once; a mark on a full disk is lost."""

    def __init__(self, directory: Path) -> None:
        self._file = os.open(directory / FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def write(self, mark: Mark) -> None:
        """Append a mark."""
        with contextlib.suppress(OSError):
            os.write(self._file, mark.to_line().encode(errors="replace"))


def read_marks(directory: Path) -> Iterator[Mark]:
    """The marks of a log; none if the script left none."""
    path = directory / FILE
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.endswith("\n"):  # the process may have been killed while it wrote the last line
                yield Mark.from_line(line[:-1])
