"""The loops of a function, from its bytecode: every backward jump closes one."""

from __future__ import annotations

import dataclasses
import dis
import functools
from types import CodeType


@dataclasses.dataclass(frozen=True)
class CodeLoop:
    """One loop of a code object."""

    key: str  # ``file.py:12``, the line of its ``for`` or of the first line of its ``while``
    start: int  # offset of its first instruction, in bytes
    stop: int  # offset of its last backward jump

    def contains(self, offset: int) -> bool:
        """Whether an instruction belongs to the loop."""
        return self.start <= offset <= self.stop


@functools.cache
def loops_of(code: CodeType) -> tuple[CodeLoop, ...]:
    """The loops of a code object, outer ones before the loops within them.

    A ``continue`` and an ``else`` give a loop several backward jumps to one target; they count as one loop.
    """
    stops: dict[int, int] = {}  # offset of the first instruction -> offset of the last jump back to it
    lines: dict[int, int] = {}
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        line = getattr(instruction.positions, "lineno", None) or line
        lines[instruction.offset] = line
        is_jump = instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs
        if is_jump and isinstance(instruction.argval, int) and instruction.argval <= instruction.offset:
            stops[instruction.argval] = max(stops.get(instruction.argval, 0), instruction.offset)
    loops = [CodeLoop(f"{code.co_filename}:{lines[start]}", start, stop) for start, stop in stops.items()]
    return tuple(sorted(loops, key=lambda loop: (loop.start, -loop.stop)))


@functools.cache
def loops_around(code: CodeType, offset: int) -> tuple[CodeLoop, ...]:
    """The loops that contain an instruction, the outermost first."""
    return tuple(loop for loop in loops_of(code) if loop.contains(offset))
